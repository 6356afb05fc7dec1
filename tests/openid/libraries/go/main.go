// The relying party of github.com/zitadel/oidc. /login sends the browser to the provider, / has the user's claims as JSON.
// Environment variables configure it.
package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"log"
	"net/http"
	"os"

	"github.com/zitadel/oidc/v3/pkg/client/rp"
	httphelper "github.com/zitadel/oidc/v3/pkg/http"
	"github.com/zitadel/oidc/v3/pkg/oidc"
)

func main() {
	address := "127.0.0.1:" + os.Getenv("PORT")
	key := make([]byte, 32)
	rand.Read(key)
	cookies := httphelper.NewCookieHandler(key, key, httphelper.WithUnsecure())
	provider, err := rp.NewRelyingPartyOIDC(
		context.Background(), os.Getenv("OIDC_ISSUER"), os.Getenv("OIDC_CLIENT_ID"), os.Getenv("OIDC_CLIENT_SECRET"),
		"http://"+address+"/callback", []string{"openid", "email"},
		rp.WithCookieHandler(cookies),
		rp.WithPKCE(cookies),
	)
	if err != nil {
		log.Fatal(err)
	}
	var refreshToken, idToken string
	var user *oidc.UserInfo
	signedIn := func(w http.ResponseWriter, r *http.Request, tokens *oidc.Tokens[*oidc.IDTokenClaims], _ string, _ rp.RelyingParty, info *oidc.UserInfo) {
		refreshToken, idToken, user = tokens.RefreshToken, tokens.IDToken, info
		http.Redirect(w, r, "/", http.StatusFound)
	}
	http.Handle("/login", rp.AuthURLHandler(rand.Text, provider))
	http.Handle("/callback", rp.CodeExchangeHandler(rp.UserinfoCallback(signedIn), provider))
	http.HandleFunc("/refresh", func(w http.ResponseWriter, r *http.Request) {
		tokens, err := rp.RefreshTokens[*oidc.IDTokenClaims](r.Context(), provider, refreshToken, "", "")
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		json.NewEncoder(w).Encode(tokens.IDTokenClaims)
	})
	http.HandleFunc("/logout", func(w http.ResponseWriter, r *http.Request) {
		end, err := rp.EndSession(r.Context(), provider, idToken, "http://"+address+"/", "", "", nil)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		user = nil
		http.Redirect(w, r, end.String(), http.StatusFound)
	})
	http.HandleFunc("/{$}", func(w http.ResponseWriter, r *http.Request) {
		if user == nil {
			w.Write([]byte("{}"))
			return
		}
		json.NewEncoder(w).Encode(user)
	})
	log.Fatal(http.ListenAndServe(address, nil))
}
