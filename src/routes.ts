// The route table: the whole API on one page. The router, `Allow`, `OPTIONS`, the `Accept` of a 415, the
// log and the metrics follow from it; openapi.json and /docs from it and scripts/openapi/.
import { greet, greetCaller, issueToken, readNote, showApi, showDocs } from './api/storeless.ts';
import * as users from './api/users.ts';
import type { RouteTable } from './route.ts';

// biome-ignore format: a table reads in columns
export const routes = {
  'GET /':              { access: 'none',              accepts: [],                     returns: [200],                     handle: greet,         summary: 'A greeting in plain text' },
  'POST /token':        { access: 'none',              accepts: ['json', 'form'],       returns: [200, 401, 429],           handle: issueToken,    summary: 'Returns a token, valid for an hour, for `id` and `pw`' },
  'GET /notes':         { access: 'bearer',            accepts: [],                     returns: [200],                     handle: readNote,      summary: 'The note' },
  'GET /protected':     { access: 'basic',             accepts: [],                     returns: [200],                     handle: greetCaller,   summary: 'A greeting for the credential user' },
  'GET /users':         { access: 'bearerIfProtected', accepts: [],                     returns: [200, 500],                handle: users.list,    summary: 'All users, a page of them (`limit`, `after`), or the one with an `email`' },
  'POST /users':        { access: 'bearerIfProtected', accepts: ['json'],               returns: [201, 500],                handle: users.create,  summary: 'Creates a user' },
  'GET /users/{id}':    { access: 'bearerIfProtected', accepts: [],                     returns: [200, 304, 404, 412, 500], handle: users.read,    summary: 'A user' },
  'PUT /users/{id}':    { access: 'bearerIfProtected', accepts: ['json'],               returns: [200, 404, 412, 500],      handle: users.replace, summary: "Replaces a user's name and email" },
  'PATCH /users/{id}':  { access: 'bearerIfProtected', accepts: ['json', 'mergePatch'], returns: [200, 404, 412, 500],      handle: users.patch,   summary: 'Changes the given fields (JSON Merge Patch)' },
  'DELETE /users/{id}': { access: 'bearerIfProtected', accepts: [],                     returns: [200, 404, 412, 500],      handle: users.remove,  summary: 'Deletes a user and returns it' },
  'GET /openapi.json':  { access: 'none',              accepts: [],                     returns: [200, 304],                handle: showApi,       summary: 'This API as an OpenAPI 3.1 document' },
  'GET /docs':          { access: 'none',              accepts: [],                     returns: [200, 304],                handle: showDocs,      summary: 'This API as a page, with a form for each route' },
} satisfies RouteTable;
