// express 5 with jsonwebtoken and pg, as in their manuals.
import express, { type NextFunction, type Request, type Response } from 'express';
import jwt from 'jsonwebtoken';
import pg from 'pg';

const { PORT, DATABASE_URL, AUTH_USER, AUTH_PASSWORD, AUTH_NAME } = process.env;
const secret = String(process.env.SIGNING_SECRET);
const note = { title: process.env.NOTE_TITLE, contents: process.env.NOTE_CONTENTS };
const pool = new pg.Pool({ connectionString: DATABASE_URL });
const app = express();
app.use(express.json());
app.use(express.urlencoded({ extended: true }));

app.get('/', (_req, res) => {
  res.type('text/plain').send('Hello, World!\n');
});

app.post('/token', (req, res) => {
  const { id, pw } = req.body ?? {};
  if (id !== AUTH_USER || pw !== AUTH_PASSWORD) {
    res.status(401).type('text/plain').send('Unauthorized');
    return;
  }
  res.json({ token: jwt.sign({ id, name: AUTH_NAME }, secret, { expiresIn: 3600 }) });
});

app.get('/notes', bearer, (_req, res) => {
  res.json(note);
});

app.get('/protected', basic, (_req, res) => {
  res.type('text/plain').send('You are authorized.\n');
});

app.get('/users', async (_req, res) => {
  const { rows } = await pool.query('select id, name, email from users order by id');
  res.json(rows);
});

app.post('/users', async (req, res) => {
  const { name, email } = newUser(req.body);
  const { rows } = await pool.query(
    'insert into users (name, email) values ($1, $2) returning id, name, email',
    [name, email],
  );
  res.status(201).location(`/users/${rows[0].id}`).json(rows[0]);
});

app.get('/users/:id', async (req, res) => {
  const { rows } = await pool.query('select id, name, email from users where id = $1', [idOf(req)]);
  found(res, rows[0]);
});

app.put('/users/:id', async (req, res) => {
  const { name, email } = newUser(req.body);
  const { rows } = await pool.query(
    'update users set name = $2, email = $3 where id = $1 returning id, name, email',
    [idOf(req), name, email],
  );
  found(res, rows[0]);
});

app.patch('/users/:id', async (req, res) => {
  const { name = null, email = null } = userChange(req.body);
  const { rows } = await pool.query(
    `update users set name = coalesce($2, name), email = coalesce($3, email)
     where id = $1 returning id, name, email`,
    [idOf(req), name, email],
  );
  found(res, rows[0]);
});

app.delete('/users/:id', async (req, res) => {
  const { rows } = await pool.query('delete from users where id = $1 returning id, name, email', [
    idOf(req),
  ]);
  found(res, rows[0]);
});

// Errors of the body parsers have a status.
type WithStatus = Error & { status?: number };
app.use((err: WithStatus, _req: Request, res: Response, _next: NextFunction) => {
  const taken = err instanceof pg.DatabaseError && err.code === '23505';
  const status = taken || err instanceof BadRequest ? 400 : (err.status ?? 500);
  const message = taken ? 'email is taken' : status < 500 ? err.message : 'Internal Server Error';
  res.status(status).type('text/plain').send(message);
});

app.listen(Number(PORT));

class BadRequest extends Error {}

function bearer(req: Request, res: Response, next: NextFunction): void {
  const [scheme, token, ...rest] = req.get('authorization')?.split(' ') ?? [];
  try {
    if (scheme !== 'Bearer' || !token || rest.length > 0) throw new Error('no bearer token');
    const claims = jwt.verify(token, secret, { algorithms: ['HS256'] });
    if (typeof claims === 'string') throw new Error('no claims');
    if (claims.id !== AUTH_USER || claims.name !== AUTH_NAME) throw new Error('another user');
  } catch {
    res.status(401).set('WWW-Authenticate', 'Bearer').type('text/plain').send('Unauthorized');
    return;
  }
  next();
}

function basic(req: Request, res: Response, next: NextFunction): void {
  const [scheme, credentials = ''] = req.get('authorization')?.split(' ') ?? [];
  const pair = Buffer.from(credentials, 'base64').toString();
  if (scheme !== 'Basic' || pair !== `${AUTH_USER}:${AUTH_PASSWORD}`) {
    res.status(401).set('WWW-Authenticate', 'Basic').type('text/plain').send('Unauthorized');
    return;
  }
  next();
}

function idOf(req: Request): number {
  const id = Number(req.params.id);
  return Number.isInteger(id) && id > 0 && id < 2 ** 31 ? id : 0;
}

function found(res: Response, user: unknown): void {
  if (user) res.json(user);
  else res.status(404).type('text/plain').send('no such user');
}

function newUser(body: unknown): { name: string; email: string } {
  const { name, email } = userChange(body);
  if (name === undefined || email === undefined) throw new BadRequest('name and email are needed');
  return { name, email };
}

function userChange(body: unknown): { name?: string; email?: string } {
  const { name, email } = (body ?? {}) as Record<string, unknown>;
  if (name !== undefined && (typeof name !== 'string' || name.length < 1 || name.length > 100)) {
    throw new BadRequest('name is a string of 1 to 100 characters');
  }
  if (email !== undefined && (typeof email !== 'string' || !/^[^\s@]+@[^\s@]+$/.test(email))) {
    throw new BadRequest('email is an address');
  }
  return { ...(name !== undefined && { name }), ...(email !== undefined && { email }) };
}
