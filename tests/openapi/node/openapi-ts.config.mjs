// For @hey-api/openapi-ts, in a folder that holds the document. Node.js imports TypeScript by its full name.
export default {
  input: "openapi.json",
  output: { path: "hey_api", module: { extension: ".ts" } },
  logs: { file: false },
};
