// GET /openapi.json (contract 8.1): what the API is, for programs.
import { json, type Reply } from '../http/reply.ts';
import type { Context, Services } from '../route.ts';

/** 200, the OpenAPI document. */
export function describeApi(_context: Context, services: Services): Reply {
  // 8.1
  return { ...json(services.description()), isStatic: true };
}
