// The route table: the whole API on one page. The router, `Allow`, `OPTIONS`, the `Accept` of a 415, the
// log, the metrics, openapi.json and /docs follow from it.

import { describeApi, greet, greetCaller, readNote, showDocs } from './api/fixed.ts';
import { issueToken } from './api/token.ts';
import {
  createUser,
  deleteUser,
  listUsers,
  patchUser,
  readUser,
  replaceUser,
} from './api/users.ts';
import { basic, bearer, optionalBearer, PUBLIC } from './auth/access.ts';
import type { RouteTable } from './route.ts';

/** Routes by method and path. A 401 names the last fixed part of the path as its realm (3.19). */
// biome-ignore format: a table reads in columns
export const routes = {
  'GET /':              { access: PUBLIC,                  accepts: [],                     returns: [200],                     handle: greet,       summary: 'A greeting in plain text' },
  'POST /token':        { access: PUBLIC,                  accepts: ['json', 'form'],       returns: [200, 401, 429],           handle: issueToken,  summary: 'Returns a token, valid for an hour, for `id` and `pw`' },
  'GET /notes':         { access: bearer('notes'),         accepts: [],                     returns: [200],                     handle: readNote,    summary: 'The note' },
  'GET /protected':     { access: basic('protected'),      accepts: [],                     returns: [200],                     handle: greetCaller, summary: 'A greeting for the credential user' },
  'GET /users':         { access: optionalBearer('users'), accepts: [],                     returns: [200, 500],                handle: listUsers,   summary: 'All users, a page of them (`limit`, `after`), or the one with an `email`' },
  'POST /users':        { access: optionalBearer('users'), accepts: ['json'],               returns: [201, 500],                handle: createUser,  summary: 'Creates a user' },
  'GET /users/{id}':    { access: optionalBearer('users'), accepts: [],                     returns: [200, 304, 404, 412, 500], handle: readUser,    summary: 'A user' },
  'PUT /users/{id}':    { access: optionalBearer('users'), accepts: ['json'],               returns: [200, 404, 412, 500],      handle: replaceUser, summary: "Replaces a user's name and email" },
  'PATCH /users/{id}':  { access: optionalBearer('users'), accepts: ['json', 'mergePatch'], returns: [200, 404, 412, 500],      handle: patchUser,   summary: 'Changes the given fields (JSON Merge Patch)' },
  'DELETE /users/{id}': { access: optionalBearer('users'), accepts: [],                     returns: [200, 404, 412, 500],      handle: deleteUser,  summary: 'Deletes a user and returns it' },
  'GET /openapi.json':  { access: PUBLIC,                  accepts: [],                     returns: [200, 304],                handle: describeApi, summary: 'This API as an OpenAPI 3.1 document' },
  'GET /docs':          { access: PUBLIC,                  accepts: [],                     returns: [200, 304],                handle: showDocs,    summary: 'This API as a page, with a form for each route' },
} satisfies RouteTable;
