// The route table: the whole API on one page. The router, `Allow`, `OPTIONS`, the `Accept` of a 415, the
// log and the metrics follow from it. openapi.json describes it, and tests hold the two together.
import { greet, greetCaller, issueToken, readNote, showApi, showDocs } from './api/access.ts';
import * as users from './api/users.ts';
import { FORM, JSON_TYPE, MERGE_PATCH } from './http/media.ts';
import type { RouteTable } from './route.ts';

// biome-ignore format: a table reads in columns
export const routes = {
  'GET /':              { access: 'none',              accepts: [],                       handle: greet },
  'POST /token':        { access: 'none',              accepts: [JSON_TYPE, FORM],        handle: issueToken },
  'GET /notes':         { access: 'bearer',            accepts: [],                       handle: readNote },
  'GET /protected':     { access: 'basic',             accepts: [],                       handle: greetCaller },
  'GET /users':         { access: 'bearerIfProtected', accepts: [],                       handle: users.list },
  'POST /users':        { access: 'bearerIfProtected', accepts: [JSON_TYPE],              handle: users.create },
  'GET /users/{id}':    { access: 'bearerIfProtected', accepts: [],                       handle: users.read },
  'PUT /users/{id}':    { access: 'bearerIfProtected', accepts: [JSON_TYPE],              handle: users.replace },
  'PATCH /users/{id}':  { access: 'bearerIfProtected', accepts: [JSON_TYPE, MERGE_PATCH], handle: users.patch },
  'DELETE /users/{id}': { access: 'bearerIfProtected', accepts: [],                       handle: users.remove },
  'GET /openapi.json':  { access: 'none',              accepts: [],                       handle: showApi },
  'GET /docs':          { access: 'none',              accepts: [],                       handle: showDocs },
} satisfies RouteTable;
