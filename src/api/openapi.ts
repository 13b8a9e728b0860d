// GET /openapi.json (contract 8.1): the API's description for programs.
import type { Reply } from '../http/reply.ts';
import type { Context, Services } from '../route.ts';

/** 200 or 304. */
export function describeApi({ headers }: Context, { openapi }: Services): Reply {
  return openapi.reply(headers); // 8.1, 8.3
}
