// GET / (contract 3.1): says that the service is there, whether or not the store is.
import { type Reply, text } from '../http/reply.ts';

/** 200, a greeting in plain text. */
export function greet(): Reply {
  // 3.1
  return text(200, 'Hello! This is the Notes and Users API.\n');
}
