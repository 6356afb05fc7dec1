// An identity provider made with the unchanged library `samlify`. Each line of standard input is a call, {call, ...}; each line of
// standard output is its result, or {error} with the text of the library.
import { createInterface } from "node:readline";
import * as samlify from "samlify";
import * as validator from "@authenio/samlify-xmllint-wasm";

samlify.setSchemaValidator(validator);

// The library fills {AuthnStatement} with nothing: an application puts its own into the template.
const AUTHN_STATEMENT =
  '<saml:AuthnStatement AuthnInstant="{AuthnInstant}" SessionIndex="{SessionIndex}"><saml:AuthnContext>' +
  "<saml:AuthnContextClassRef>{AuthnContextClassRef}</saml:AuthnContextClassRef></saml:AuthnContext></saml:AuthnStatement>";
const PASSWORD = "urn:oasis:names:tc:SAML:2.0:ac:classes:PasswordProtectedTransport";
const BASIC = "urn:oasis:names:tc:SAML:2.0:attrname-format:basic";

function identityProvider({ entityId, location, key, certificate, user, encryption }) {
  const { context } = samlify.SamlLib.defaultLoginResponseTemplate;
  return samlify.IdentityProvider({
    entityID: entityId,
    privateKey: key,
    signingCert: certificate,
    wantAuthnRequestsSigned: true,
    nameIDFormat: ["urn:oasis:names:tc:SAML:1.1:nameid-format:emailAddress"],
    singleSignOnService: [{ Binding: samlify.Constants.namespace.binding.post, Location: location }],
    singleLogoutService: [{ Binding: samlify.Constants.namespace.binding.post, Location: `${location}/logout` }],
    isAssertionEncrypted: Boolean(encryption),
    dataEncryptionAlgorithm: encryption,
    loginResponseTemplate: {
      context: context.replace("{AuthnStatement}", AUTHN_STATEMENT),
      attributes: (user?.attributes ?? []).map(([name], index) => ({
        name,
        valueTag: `value${index}`,
        nameFormat: BASIC,
        valueXsiType: "xs:string",
      })),
    },
  });
}

// Return the values that fill the template, as the library computes those of its own.
function valuesOf(idp, sp, request, { subject, attributes }) {
  const now = new Date();
  const end = new Date(now.getTime() + 5 * 60 * 1000).toISOString();
  const acs = sp.entityMeta.getAssertionConsumerService("post");
  // The library calls the tag `value0` attrValue0.
  const ofAttributes = attributes.map(([, value], index) => [`attrValue${index}`, value]);
  return {
    ID: idp.entitySetting.generateID(),
    AssertionID: idp.entitySetting.generateID(),
    Destination: acs,
    Audience: sp.entityMeta.getEntityID(),
    SubjectRecipient: acs,
    Issuer: idp.entityMeta.getEntityID(),
    IssueInstant: now.toISOString(),
    StatusCode: samlify.Constants.StatusCode.Success,
    ConditionsNotBefore: now.toISOString(),
    ConditionsNotOnOrAfter: end,
    SubjectConfirmationDataNotOnOrAfter: end,
    NameIDFormat: [idp.entitySetting.nameIDFormat].flat()[0],
    NameID: subject,
    InResponseTo: request.extract.request.id,
    AuthnInstant: now.toISOString(),
    SessionIndex: idp.entitySetting.generateID(),
    AuthnContextClassRef: PASSWORD,
    ...Object.fromEntries(ofAttributes),
  };
}

const calls = {
  metadata: (settings) => ({ metadata: identityProvider(settings).getMetadata() }),

  // Read the metadata of the service provider and the form field of its request, whose signature must be valid.
  async readRequest({ serviceProvider, samlRequest, ...settings }) {
    const sp = samlify.ServiceProvider({ metadata: serviceProvider });
    const request = await identityProvider(settings).parseLoginRequest(sp, "post", { body: { SAMLRequest: samlRequest } });
    return { request: request.extract };
  },

  // Respond to a request. With `ownTemplate` the library fills the template that it has by itself.
  async respond({ serviceProvider, samlRequest, user, signResponse, encryptThenSign, ownTemplate, ...settings }) {
    const sp = samlify.ServiceProvider({ metadata: serviceProvider, wantMessageSigned: signResponse });
    const idp = identityProvider({ ...settings, user });
    const request = await idp.parseLoginRequest(sp, "post", { body: { SAMLRequest: samlRequest } });
    const fill = (template) => {
      const values = valuesOf(idp, sp, request, user);
      return { id: values.ID, context: samlify.SamlLib.replaceTagsByValue(template, values) };
    };
    const options = { encryptThenSign, customTagReplacement: ownTemplate ? undefined : fill };
    const { context } = await idp.createLoginResponse(sp, request, "post", { email: user.subject }, options);
    return { samlResponse: context };
  },
};

// The validator reports on standard output what it rejects.
console.debug = console.info = console.error;
for await (const line of createInterface({ input: process.stdin })) {
  const { call, ...parameters } = JSON.parse(line);
  let result;
  try {
    result = await calls[call](parameters);
  } catch (problem) {
    result = { error: String(problem.message ?? problem) };
  }
  process.stdout.write(JSON.stringify(result) + "\n");
}
