// hono on @hono/node-server with its own jwt, basic-auth and validator, and postgres.
import { serve } from '@hono/node-server';
import { Hono } from 'hono';
import { basicAuth } from 'hono/basic-auth';
import { HTTPException } from 'hono/http-exception';
import { jwt, sign } from 'hono/jwt';
import { validator } from 'hono/validator';
import postgres from 'postgres';

const { PORT, DATABASE_URL } = process.env;
const [username, password] = [String(process.env.AUTH_USER), String(process.env.AUTH_PASSWORD)];
const claimName = String(process.env.AUTH_NAME);
const secret = String(process.env.SIGNING_SECRET);
const note = { title: process.env.NOTE_TITLE, contents: process.env.NOTE_CONTENTS };
const sql = postgres(String(DATABASE_URL));
const app = new Hono<{ Variables: { jwtPayload: { id: string; name: string } } }>();

app.onError((err, c) => {
  if (err instanceof HTTPException) return err.getResponse();
  if (err instanceof postgres.PostgresError && err.code === '23505') {
    return c.text('email is taken', 400);
  }
  return c.text('Internal Server Error', 500);
});

app.get('/', (c) => c.text('Hello, World!\n'));

app.post('/token', async (c) => {
  const form = c.req.header('content-type')?.startsWith('application/x-www-form-urlencoded');
  const { id, pw } = form ? await c.req.parseBody() : await c.req.json();
  if (id !== username || pw !== password) return c.text('Unauthorized', 401);
  const iat = Math.floor(Date.now() / 1000);
  return c.json({ token: await sign({ id, name: claimName, iat, exp: iat + 3600 }, secret) });
});

app.get('/notes', jwt({ secret, alg: 'HS256' }), (c) => {
  const { id, name } = c.get('jwtPayload');
  if (id !== username || name !== claimName) return c.text('Unauthorized', 401);
  return c.json(note);
});

app.get('/protected', basicAuth({ username, password }), (c) => c.text('You are authorized.\n'));

app.get('/users', async (c) => c.json(await sql`select id, name, email from users order by id`));

const newUser = validator('json', (body, c) => {
  const change = userChange(body);
  if (change?.name === undefined || change.email === undefined) {
    return c.text('name and email are needed', 400);
  }
  return { name: change.name, email: change.email };
});

app.post('/users', newUser, async (c) => {
  const { name, email } = c.req.valid('json');
  const [user] = await sql`
    insert into users (name, email) values (${name}, ${email}) returning id, name, email`;
  return c.json(user, 201, { Location: `/users/${user?.id}` });
});

app.get('/users/:id', async (c) => {
  const [user] = await sql`
    select id, name, email from users where id = ${idOf(c.req.param('id'))}`;
  return user ? c.json(user) : c.text('no such user', 404);
});

app.put('/users/:id', newUser, async (c) => {
  const { name, email } = c.req.valid('json');
  const [user] = await sql`
    update users set name = ${name}, email = ${email}
    where id = ${idOf(c.req.param('id'))} returning id, name, email`;
  return user ? c.json(user) : c.text('no such user', 404);
});

const someChange = validator(
  'json',
  (body, c) => userChange(body) ?? c.text('name or email is wrong', 400),
);

app.patch('/users/:id', someChange, async (c) => {
  const { name = null, email = null } = c.req.valid('json');
  const [user] = await sql`
    update users set name = coalesce(${name}, name), email = coalesce(${email}, email)
    where id = ${idOf(c.req.param('id'))} returning id, name, email`;
  return user ? c.json(user) : c.text('no such user', 404);
});

app.delete('/users/:id', async (c) => {
  const [user] = await sql`
    delete from users where id = ${idOf(c.req.param('id'))} returning id, name, email`;
  return user ? c.json(user) : c.text('no such user', 404);
});

serve({ fetch: app.fetch, port: Number(PORT) });

function idOf(param: string): number {
  const id = Number(param);
  return Number.isInteger(id) && id > 0 && id < 2 ** 31 ? id : 0;
}

function userChange(body: unknown): { name?: string; email?: string } | undefined {
  const { name, email } = (body ?? {}) as Record<string, unknown>;
  if (name !== undefined && (typeof name !== 'string' || name.length < 1 || name.length > 100)) {
    return undefined;
  }
  if (email !== undefined && (typeof email !== 'string' || !/^[^\s@]+@[^\s@]+$/.test(email))) {
    return undefined;
  }
  return { ...(name !== undefined && { name }), ...(email !== undefined && { email }) };
}
