// THE TABLE: the whole API on one page. The router, `Allow`, `OPTIONS`, the `Accept` of a 415 and
// the metrics' labels come from it.
import { greet } from './api/greeting.ts';
import { readNote } from './api/notes.ts';
import { greetCaller } from './api/protected.ts';
import { issueToken } from './api/token.ts';
import {
  createUser,
  deleteUser,
  listUsers,
  patchUser,
  readUser,
  replaceUser,
} from './api/users.ts';
import type { RouteTable } from './route.ts';

// biome-ignore format: a table reads in columns
export const routes = {
  'GET /':              { access: 'public', accepts: [],                     handle: greet },
  'POST /token':        { access: 'public', accepts: ['json', 'form'],       handle: issueToken },
  'GET /notes':         { access: 'bearer', accepts: [],                     handle: readNote },
  'GET /protected':     { access: 'basic',  accepts: [],                     handle: greetCaller },
  'GET /users':         { access: 'users',  accepts: [],                     handle: listUsers },
  'POST /users':        { access: 'users',  accepts: ['json'],               handle: createUser },
  'GET /users/{id}':    { access: 'users',  accepts: [],                     handle: readUser },
  'PUT /users/{id}':    { access: 'users',  accepts: ['json'],               handle: replaceUser },
  'PATCH /users/{id}':  { access: 'users',  accepts: ['json', 'mergePatch'], handle: patchUser },
  'DELETE /users/{id}': { access: 'users',  accepts: [],                     handle: deleteUser },
} satisfies RouteTable;
