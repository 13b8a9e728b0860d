// GET /docs (contract 8.2): the API as a page, for people.
import type { Reply } from '../http/reply.ts';
import type { Context, Services } from '../route.ts';

/** 200 or 304. */
export function showDocs({ headers }: Context, { page }: Services): Reply {
  return page.reply(headers); // 8.2, 8.3
}
