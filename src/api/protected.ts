// GET /protected (contract 3.9): the sample route behind Basic authentication.
import { type Reply, text } from '../http/reply.ts';
import type { Context, Services } from '../route.ts';

/** 200, a greeting in plain text. The caller has been let in before. */
export function greetCaller(_context: Context, { credential }: Services): Reply {
  // 3.9
  return text(200, `Welcome, ${credential.name}.\n`);
}
