// The version that --version, the metrics and openapi.json show. Same as in package.json.
export const VERSION = '0.1.0';
