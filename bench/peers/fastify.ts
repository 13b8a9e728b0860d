// fastify 5 with @fastify/jwt, JSON schemas and postgres, as in their manuals.
import jwt from '@fastify/jwt';
import Fastify from 'fastify';
import postgres from 'postgres';

const { PORT, DATABASE_URL, AUTH_USER, AUTH_PASSWORD, AUTH_NAME } = process.env;
const note = { title: process.env.NOTE_TITLE, contents: process.env.NOTE_CONTENTS };
const sql = postgres(String(DATABASE_URL));
const app = Fastify();

const text = { type: 'string' } as const;
const user = { type: 'object', properties: { id: { type: 'integer' }, name: text, email: text } };
const fields = {
  name: { type: 'string', minLength: 1, maxLength: 100 },
  email: { type: 'string', maxLength: 100, pattern: '^[^\\s@]+@[^\\s@]+$' },
};
const change = { type: 'object', properties: fields };
const newUser = { ...change, required: ['name', 'email'] };
const params = {
  type: 'object',
  properties: { id: { type: 'integer', minimum: 1, maximum: 2147483647 } },
};
const response = { '2xx': user };
type ById = { Params: { id: number } };
type WithUser = { Body: { name: string; email: string } };
type WithChange = { Body: { name?: string; email?: string } };

await app.register(jwt, {
  secret: String(process.env.SIGNING_SECRET),
  sign: { algorithm: 'HS256', expiresIn: '1h' },
  verify: { algorithms: ['HS256'] },
});

app.setErrorHandler((err: Error & { code?: string; statusCode?: number }, _request, reply) => {
  const status = err.code === '23505' ? 400 : (err.statusCode ?? 500);
  reply
    .code(status)
    .type('text/plain')
    .send(status < 500 ? err.message : 'Internal Server Error');
});

app.get('/', (_request, reply) => {
  reply.type('text/plain').send('Hello, World!\n');
});

app.post<{ Body: { id?: string; pw?: string } | null }>('/token', (request, reply) => {
  const { id, pw } = request.body ?? {};
  if (id !== AUTH_USER || pw !== AUTH_PASSWORD) {
    reply.code(401).type('text/plain').send('Unauthorized');
    return;
  }
  reply.send({ token: app.jwt.sign({ id, name: AUTH_NAME }) });
});

const noteResponse = { 200: { type: 'object', properties: { title: text, contents: text } } };
app.get('/notes', { schema: { response: noteResponse as object } }, async (request, reply) => {
  const claims = await request.jwtVerify<{ id: string; name: string }>();
  if (claims.id === AUTH_USER && claims.name === AUTH_NAME) return note;
  return reply.code(401).type('text/plain').send('Unauthorized');
});

app.get('/users', { schema: { response: { 200: { type: 'array', items: user } } } }, () =>
  query('select id, name, email from users order by id', []),
);

app.post<WithUser>('/users', { schema: { body: newUser, response } }, async (request, reply) => {
  const { name, email } = request.body;
  const [created] = await query(
    'insert into users (name, email) values ($1, $2) returning id, name, email',
    [name, email],
  );
  return reply.code(201).header('location', `/users/${created?.id}`).send(created);
});

app.get<ById>('/users/:id', { schema: { params, response } }, async (request, reply) => {
  const [row] = await query('select id, name, email from users where id = $1', [request.params.id]);
  return row ?? reply.code(404).type('text/plain').send('no such user');
});

app.patch<ById & WithChange>(
  '/users/:id',
  { schema: { params, body: change, response } },
  async (request, reply) => {
    const { name = null, email = null } = request.body;
    const [row] = await query(
      `update users set name = coalesce($2, name), email = coalesce($3, email)
       where id = $1 returning id, name, email`,
      [request.params.id, name, email],
    );
    return row ?? reply.code(404).type('text/plain').send('no such user');
  },
);

app.delete<ById>('/users/:id', { schema: { params, response } }, async (request, reply) => {
  const [row] = await query('delete from users where id = $1 returning id, name, email', [
    request.params.id,
  ]);
  return row ?? reply.code(404).type('text/plain').send('no such user');
});

await app.listen({ port: Number(PORT), host: '::' });

type Value = string | number | null;

/** `prepare` makes one prepared statement for each text, as a tagged template does. */
function query(text: string, values: Value[]): Promise<readonly { id?: number }[]> {
  return sql.unsafe(text, values, { prepare: true });
}
