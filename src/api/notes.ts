// GET /notes (contract 3.5): the one note, for holders of a token.
import { json, type Reply } from '../http/reply.ts';
import type { Context, Services } from '../route.ts';

/** 200, `{"title", "contents"}`. The caller has been let in before. */
export function readNote(_context: Context, { note }: Services): Reply {
  // 3.5
  return json(note);
}
