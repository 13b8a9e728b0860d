// The version of the service, which package.json has too; a test compares.

/** Semantic version (semver.org): the API, the settings and the metrics are what it speaks of. */
export const VERSION = '0.1.0';
