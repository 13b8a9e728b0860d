// URLs of the databases of the fault tests.

/** Returns the URL with other ports of 127.0.0.1. */
export function through(databaseUrl: string, ...ports: readonly number[]): string {
  const { username, password, pathname, search } = new URL(databaseUrl);
  const hosts = ports.map((port) => `127.0.0.1:${port}`).join(',');
  return `postgres://${username}:${password}@${hosts}${pathname}${search}`;
}
