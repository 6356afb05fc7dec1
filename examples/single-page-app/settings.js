const ISSUER = "http://localhost:8000/t/demo";
const CLIENT_ID = "the id of your client";
