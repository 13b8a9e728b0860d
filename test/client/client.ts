// What a user of the API writes: everything it knows of the API comes from `api.ts`, which
// openapi-typescript has made of openapi.json. Prints what it was answered, as JSON.
import createClient from 'openapi-fetch';
import type { components, paths } from './api.ts';

type User = components['schemas']['User'];

const [baseUrl = '', id = '', pw = ''] = process.argv.slice(2);
const api = createClient<paths>({ baseUrl });

const { data: issued } = await api.POST('/token', { body: { id, pw } });
const headers = { Authorization: `Bearer ${issued?.token}` };
const note = await api.GET('/notes', { headers });
const noNote = await api.GET('/notes');
const greeting = await api.GET('/', { parseAs: 'text' });

const body = { name: 'Ada', email: 'ada@example.com' };
const created = await api.POST('/users', { headers, body });
const taken = await api.POST('/users', { headers, body });
const user: User | undefined = created.data;
const tag = created.response.headers.get('ETag') ?? '';

const one = { id: user?.id ?? 0 };
const ifMatch = { path: one, header: { 'If-Match': tag } };
const changed = await api.PATCH('/users/{id}', {
  headers,
  params: ifMatch,
  body: { name: 'Ada Lovelace' },
});
const stale = await api.PATCH('/users/{id}', { headers, params: ifMatch, body: { name: 'Lost' } });
const query = { limit: 10, email: body.email };
const list = await api.GET('/users', { headers, params: { query } });
const names: string[] | undefined = list.data?.map(({ name }) => name);
const refusal: string | undefined = stale.error;

console.log(
  JSON.stringify({
    greeting: greeting.data,
    note: note.data?.title,
    noNote: [noNote.response.status, noNote.error],
    created: [created.response.status, user?.email],
    taken: [taken.response.status, taken.error],
    changed: [changed.response.status, changed.data?.name],
    stale: [stale.response.status, refusal],
    names,
  }),
);
