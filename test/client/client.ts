// The journey with openapi-fetch. Its types come only from `api.ts`, which openapi-typescript
// generates from openapi.json. Prints the journey as JSON.
import createClient from 'openapi-fetch';
import type { components, paths } from './api.ts';

type User = components['schemas']['User'];

const [baseUrl = '', id = '', pw = ''] = process.argv.slice(2);
const api = createClient<paths>({ baseUrl });

const { data: issued } = await api.POST('/token', { body: { id, pw } });
const headers = { Authorization: `Bearer ${issued?.token}` };
const basic = { Authorization: `Basic ${btoa(`${id}:${pw}`)}` };
const secret = await api.GET('/protected', { headers: basic, parseAs: 'text' });

const body = { name: 'Ada', email: 'ada@example.com' };
const created = await api.POST('/users', { headers, body });
const user: User | undefined = created.data;
const tag = created.response.headers.get('ETag') ?? '';

const path = { id: user?.id ?? 0 };
const change = {
  headers,
  params: { path, header: { 'If-Match': tag } },
  body: { name: 'Ada Lovelace' },
};
const patched = await api.PATCH('/users/{id}', change);
const stale = await api.PATCH('/users/{id}', change);
const refusal: string | undefined = stale.error;

await api.POST('/users', { headers, body: { name: 'Bob', email: 'bob@example.com' } });
const query = { limit: 1, after: 0 };
const page = await api.GET('/users', { headers, params: { query } });

const journey = {
  protected: secret.data,
  created: [created.response.status, user?.email, tag],
  patched: [patched.response.status, patched.data?.name, patched.response.headers.get('ETag')],
  stale: [stale.response.status, refusal],
  page: [page.data?.[0]?.name, page.response.headers.get('Link')],
};
console.log(JSON.stringify(journey));
