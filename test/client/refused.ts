// Misuse that the types of a client catch: each expected error must be one.
import createClient from 'openapi-fetch';
import type { components, paths } from './api.ts';

const api = createClient<paths>({ baseUrl: '' });
const path = { id: 1 };
const name = 'Ada';

// @ts-expect-error an unknown path
await api.GET('/nowhere');
// @ts-expect-error a method that the path does not have
await api.PUT('/notes');
// @ts-expect-error no id
await api.GET('/users/{id}');
// @ts-expect-error an id of another type
await api.GET('/users/{id}', { params: { path: { id: 'one' } } });
// @ts-expect-error a limit of another type
await api.GET('/users', { params: { query: { limit: 'all' } } });
// @ts-expect-error no email
await api.POST('/users', { body: { name } });
// @ts-expect-error no password
await api.POST('/token', { body: { id: name } });
// @ts-expect-error null
await api.PATCH('/users/{id}', { params: { path }, body: { name: null } });
// @ts-expect-error an unknown field
(await api.GET('/users/{id}', { params: { path } })).data?.version;
(await api.GET('/users/{id}', { params: { path } })).data?.name satisfies string | undefined;
// @ts-expect-error no email
export const user: components['schemas']['User'] = { id: 1, name };
