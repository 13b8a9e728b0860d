// THE TABLE: the whole API on one page. The router, `Allow`, `OPTIONS`, the `Accept` of a 415 and
// the log's route come from it.
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
  'GET /':              { access: 'public', accepts: [],                     handle: greet,       summary: 'A greeting in plain text' },
  'POST /token':        { access: 'public', accepts: ['json', 'form'],       handle: issueToken,  summary: '`id` and `pw` for a token that is valid for an hour' },
  'GET /notes':         { access: 'bearer', accepts: [],                     handle: readNote,    summary: 'The note' },
  'GET /protected':     { access: 'basic',  accepts: [],                     handle: greetCaller, summary: 'A greeting for who knows the password' },
  'GET /users':         { access: 'users',  accepts: [],                     handle: listUsers,   summary: 'All users, a page of them (`limit`, `after`), or the one with an `email`' },
  'POST /users':        { access: 'users',  accepts: ['json'],               handle: createUser,  summary: 'Creates a user' },
  'GET /users/{id}':    { access: 'users',  accepts: [],                     handle: readUser,    summary: 'A user' },
  'PUT /users/{id}':    { access: 'users',  accepts: ['json'],               handle: replaceUser, summary: "Replaces a user's name and email" },
  'PATCH /users/{id}':  { access: 'users',  accepts: ['json', 'mergePatch'], handle: patchUser,   summary: 'Changes what the body names (JSON Merge Patch)' },
  'DELETE /users/{id}': { access: 'users',  accepts: [],                     handle: deleteUser,  summary: 'Deletes a user and answers with it' },
} satisfies RouteTable;
