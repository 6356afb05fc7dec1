"""Names of claims that no tenant can map: what they mean is fixed, so applications trust them.

The one list of them. `tests/openid/test_reserved_claims.py` compares it with what the platform's own tokens carry.
"""

from typing import Final

# What the platform says about users and tokens, beyond what is registered.
_OURS: Final = "typ kind tenant_id permissions external_id s_hash mfa_methods gen username user_id token_type active"
# JSON Web Token Claims registry of IANA, as of June 2026. It has the claims of RFC 7519, 8693, 9068 and 9396, and those of
# OpenID Connect Core, Federation and Identity Assurance.
_REGISTERED: Final = """
iss sub aud exp nbf iat jti name given_name family_name middle_name nickname preferred_username profile picture website email
email_verified gender birthdate zoneinfo locale phone_number phone_number_verified address updated_at azp nonce auth_time
at_hash c_hash acr amr sub_jwk cnf sip_from_tag sip_date sip_callid sip_cseq_num sip_via_branch orig dest mky events toe txn
rph sid vot vtm attest origid act scope client_id may_act jcard at_use_nbr div opt vc vp sph ace_profile cnonce exi roles
groups entitlements token_introspection eat_nonce ueid sueids oemid hwmodel hwversion oemboot dbgstat location eat_profile
submods uptime bootcount bootseed dloas swname swversion manifests measurements measres intuse cdniv cdnicrit cdniip cdniuc
cdniets cdnistt cdnistd sig_val_claims authorization_details verified_claims place_of_birth nationalities birth_family_name
birth_given_name birth_middle_name salutation title msisdn also_known_as htm htu ath atc sub_id rcd rcdi crn msgi
_claim_names _claim_sources rdap_allowed_purposes rdap_dnt_allowed geohash _sd _sd_alg sd_hash consumerPlmnId consumerSnpnId
producerPlmnId producerSnpnId producerSnssaiList producerNsiList producerNfSetId producerNfServiceSetId sourceNfInstanceId
analyticsIdList resOwnerId cmw jwks metadata constraints crit ref delegation logo_uri authority_hints trust_anchor_hints
trust_marks trust_mark_issuers trust_mark_owners metadata_policy metadata_policy_crit source_endpoint keys trust_mark_type
trust_chain trust_anchor status status_list ttl stpl
"""
# Not registered, but applications that were written for Microsoft Entra ID, Keycloak or Auth0 identify or authorize users by
# them.
_OF_OTHER_PROVIDERS: Final = """
upn oid tid unique_name hasgroups wids scp appid appidacr azpacr idtyp idp uti ver realm_access resource_access session_state
gty org_id org_name
"""
RESERVED_CLAIMS: Final = frozenset((_OURS + " " + _REGISTERED + _OF_OTHER_PROVIDERS).split())
# Those that describe a person and decide nothing.
_DESCRIPTIVE: Final = """
given_name family_name middle_name nickname profile picture website gender birthdate zoneinfo address place_of_birth
nationalities birth_family_name birth_given_name birth_middle_name salutation title also_known_as location
"""
DESCRIPTIVE_CLAIMS: Final = frozenset(_DESCRIPTIVE.split())


def is_issued(name: str) -> bool:
    """Return whether a name in a stored setting becomes a claim: not if it has been reserved since and decides anything."""
    return name not in RESERVED_CLAIMS or name in DESCRIPTIVE_CLAIMS
