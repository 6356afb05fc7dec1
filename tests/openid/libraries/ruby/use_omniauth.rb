# Debian's gitlab-omniauth-openid-connect, the provider of GitLab. /login sends the browser to the tenant's provider, / has
# the user's claims as JSON. Environment variables configure it.
require "json"
require "omniauth"
require "omniauth_openid_connect"
require "rack"
require "rack/protection"

home = "http://127.0.0.1:#{ENV.fetch('PORT')}/"
site = Rack::Builder.new do
  use Rack::Session::Cookie, secret: ENV.fetch("SECRET_KEY")
  use OmniAuth::Builder do
    provider :openid_connect,
             issuer: ENV.fetch("OIDC_ISSUER"),
             discovery: true,
             scope: %i[openid email],
             client_options: {
               identifier: ENV.fetch("OIDC_CLIENT_ID"),
               secret: ENV.fetch("OIDC_CLIENT_SECRET"),
               redirect_uri: "#{home}auth/openid_connect/callback",
             }
  end
  map "/login" do
    run(lambda do |env|
      token = Rack::Protection::AuthenticityToken.token(env["rack.session"])
      field = %(<input type="hidden" name="authenticity_token" value="#{token}">)
      [200, { "Content-Type" => "text/html" }, [%(<form method="post" action="/auth/openid_connect">#{field}</form>)]]
    end)
  end
  map "/auth/openid_connect/callback" do
    run(lambda do |env|
      env["rack.session"]["user"] = { sub: env["omniauth.auth"].uid, email: env["omniauth.auth"].info.email }
      [302, { "Location" => "/" }, []]
    end)
  end
  map "/" do
    run ->(env) { [200, { "Content-Type" => "application/json" }, [JSON.generate(env["rack.session"]["user"] || {})]] }
  end
end
Rack::Handler.get("webrick").run(site, Host: "127.0.0.1", Port: ENV.fetch("PORT"))
