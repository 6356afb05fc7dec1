// Starts the unchanged identity provider `saml-idp`. Standard input: its options as JSON.
import { readFileSync } from "node:fs";
import samlIdp from "saml-idp";

samlIdp.runServer(JSON.parse(readFileSync(0, "utf8")));
