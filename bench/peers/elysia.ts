// elysia on bun with @elysiajs/jwt, its own schemas, and postgres.
import { jwt } from '@elysiajs/jwt';
import { Elysia, t } from 'elysia';
import postgres from 'postgres';

const { PORT, DATABASE_URL, AUTH_USER, AUTH_PASSWORD, AUTH_NAME } = process.env;
const note = { title: process.env.NOTE_TITLE, contents: process.env.NOTE_CONTENTS };
const sql = postgres(String(DATABASE_URL));

const params = t.Object({ id: t.Integer({ minimum: 1, maximum: 2147483647 }) });
const newUser = t.Object({
  name: t.String({ minLength: 1, maxLength: 100 }),
  email: t.String({ maxLength: 100, pattern: '^[^\\s@]+@[^\\s@]+$' }),
});

new Elysia()
  .use(jwt({ name: 'jwt', secret: String(process.env.SIGNING_SECRET), alg: 'HS256', exp: '1h' }))
  .onError(({ code, error, status }) => {
    if (error instanceof postgres.PostgresError && error.code === '23505') {
      return status(400, 'email is taken');
    }
    if (code === 'VALIDATION' || code === 'PARSE') return status(400, 'Bad Request');
    if (code === 'NOT_FOUND') return status(404, 'Not Found');
    return status(500, 'Internal Server Error');
  })
  .get('/', 'Hello, World!\n')
  .post(
    '/token',
    async ({ body, jwt, status }) => {
      if (body.id !== AUTH_USER || body.pw !== AUTH_PASSWORD) return status(401, 'Unauthorized');
      return { token: await jwt.sign({ id: body.id, name: String(AUTH_NAME) }) };
    },
    { body: t.Object({ id: t.String(), pw: t.String() }) },
  )
  .get('/notes', async ({ headers, jwt, status }) => {
    const [scheme, token, ...rest] = headers.authorization?.split(' ') ?? [];
    if (scheme !== 'Bearer' || !token || rest.length > 0) return status(401, 'Unauthorized');
    const claims = await jwt.verify(token);
    if (!claims || claims.id !== AUTH_USER || claims.name !== AUTH_NAME) {
      return status(401, 'Unauthorized');
    }
    return note;
  })
  .get('/protected', ({ headers, status }) => {
    const [scheme, credentials = ''] = headers.authorization?.split(' ') ?? [];
    const pair = Buffer.from(credentials, 'base64').toString();
    if (scheme !== 'Basic' || pair !== `${AUTH_USER}:${AUTH_PASSWORD}`) {
      return status(401, 'Unauthorized');
    }
    return 'You are authorized.\n';
  })
  .get('/users', async () => [...(await sql`select id, name, email from users order by id`)])
  .post(
    '/users',
    async ({ body: { name, email }, set, status }) => {
      const [user] = await sql`
        insert into users (name, email) values (${name}, ${email}) returning id, name, email`;
      set.headers.location = `/users/${user?.id}`;
      return status(201, { ...user });
    },
    { body: newUser },
  )
  .get(
    '/users/:id',
    async ({ params: { id }, status }) => {
      const [user] = await sql`select id, name, email from users where id = ${id}`;
      return user ?? status(404, 'no such user');
    },
    { params },
  )
  .put(
    '/users/:id',
    async ({ params: { id }, body: { name, email }, status }) => {
      const [user] = await sql`
        update users set name = ${name}, email = ${email}
        where id = ${id} returning id, name, email`;
      return user ?? status(404, 'no such user');
    },
    { params, body: newUser },
  )
  .patch(
    '/users/:id',
    async ({ params: { id }, body: { name = null, email = null }, status }) => {
      const [user] = await sql`
        update users set name = coalesce(${name}, name), email = coalesce(${email}, email)
        where id = ${id} returning id, name, email`;
      return user ?? status(404, 'no such user');
    },
    { params, body: t.Partial(newUser) },
  )
  .delete(
    '/users/:id',
    async ({ params: { id }, status }) => {
      const [user] = await sql`delete from users where id = ${id} returning id, name, email`;
      return user ?? status(404, 'no such user');
    },
    { params },
  )
  .listen({ port: Number(PORT), hostname: '::' });
