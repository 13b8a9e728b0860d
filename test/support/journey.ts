// The requests that every generated client sends to a running service with PROTECT_USERS.

/** The expected output of each client, as JSON. */
export const JOURNEY = {
  protected: 'Welcome, Administrator.\n',
  created: [201, 'ada@example.com', '"1-1"'],
  patched: [200, 'Ada Lovelace', '"1-2"'],
  stale: [412, "The user's current version fails If-Match or If-None-Match."],
  page: ['Ada Lovelace', '</users?limit=1&after=1>; rel="next"'],
};
