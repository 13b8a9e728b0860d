// Misuse that the types of a client catch: a type error on each marked line, and no other.
import createClient from 'openapi-fetch';
import type { components, paths } from './api.ts';

const api = createClient<paths>({ baseUrl: '' });
const path = { id: 1 };
const name = 'Ada';

await api.GET('/nowhere'); // refused: an unknown path
await api.PUT('/notes'); // refused: a method that the path does not have
await api.GET('/users/{id}'); // refused: no id
await api.GET('/users/{id}', { params: { path: { id: 'one' } } }); // refused: an id of another type
await api.GET('/users', { params: { query: { limit: 'all' } } }); // refused: a limit of another type
await api.POST('/users', { body: { name } }); // refused: no email
await api.POST('/token', { body: { id: name } }); // refused: no password
await api.PATCH('/users/{id}', { params: { path }, body: { name: null } }); // refused: null
(await api.GET('/users/{id}', { params: { path } })).data?.version; // refused: an unknown field
(await api.GET('/users/{id}', { params: { path } })).data?.name satisfies string | undefined;
export const user: components['schemas']['User'] = { id: 1, name }; // refused: no email
