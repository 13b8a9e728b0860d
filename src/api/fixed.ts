// Handlers that need neither a body nor the store.
import { json, type Reply, text } from '../http/reply.ts';
import type { Context, Services } from '../route.ts';

/** GET / */
export function greet(): Reply {
  return text(200, 'Hello! This is the Notes and Users API.\n'); // 3.1
}

/** GET /notes */
export function readNote(_context: Context, { note }: Services): Reply {
  return json(note); // 3.5
}

/** GET /protected */
export function greetCaller(_context: Context, { credential }: Services): Reply {
  return text(200, `Welcome, ${credential.name}.\n`); // 3.9
}

/** GET /openapi.json */
export function describeApi({ headers }: Context, { openapi }: Services): Reply {
  return openapi.reply(headers); // 8.1, 8.3
}

/** GET /docs */
export function showDocs({ headers }: Context, { docs }: Services): Reply {
  return docs.reply(headers); // 8.2, 8.3
}
