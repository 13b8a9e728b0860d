// The version that --version, the metrics and openapi.json show. Semantic (semver.org): it covers the
// API, the settings and the metrics. Same as in package.json.
export const VERSION = '0.1.0';
