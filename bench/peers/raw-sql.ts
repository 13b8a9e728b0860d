// Bare node:http and one statement per request: with `postgres`, or with node:sqlite (WAL,
// synchronous=FULL: one commit per request). No routing library, no validation. The upper bound for one
// statement per request.
import { createServer, type IncomingMessage } from 'node:http';
import { DatabaseSync } from 'node:sqlite';
import postgres from 'postgres';

const url = String(process.env.DATABASE_URL);
const LIST = 'select id, name, email from users order by id';
const FIND = 'select id, name, email from users where id = $1';
const CREATE = 'insert into users (name, email) values ($1, $2) returning id, name, email';
const CHANGE = `update users set name = coalesce($2, name), email = coalesce($3, email)
  where id = $1 returning id, name, email`;
const REMOVE = 'delete from users where id = $1 returning id, name, email';
const SQLITE_CONSTRAINT_UNIQUE = 2067;

type Value = string | number | null;
type Query = (text: string, ...values: Value[]) => unknown[] | Promise<unknown[]>;
const query = url.startsWith('sqlite:') ? sqliteQuery() : postgresQuery();

createServer(async (req, res) => {
  try {
    const result = await answer(req);
    const body = JSON.stringify(result);
    const status = result === undefined ? 404 : req.method === 'POST' ? 201 : 200;
    if (body === undefined) res.writeHead(status).end();
    else {
      res.writeHead(status, {
        'Content-Type': 'application/json',
        'Content-Length': Buffer.byteLength(body),
      });
      res.end(body);
    }
  } catch (err) {
    const { code, errcode } = err as { code?: string; errcode?: number };
    const isTaken = code === '23505' || errcode === SQLITE_CONSTRAINT_UNIQUE;
    res.writeHead(isTaken ? 400 : 500).end();
  }
}).listen(Number(process.env.PORT));

async function answer(req: IncomingMessage): Promise<unknown> {
  const path = String(req.url);
  if (path === '/') return 'Hello, World!';
  if (path === '/users' && req.method === 'GET') return query(LIST);
  const id = Number(path.slice('/users/'.length));
  if (req.method === 'GET') return (await query(FIND, id))[0];
  if (req.method === 'DELETE') return (await query(REMOVE, id))[0];
  const { name = null, email = null } = await readBody(req);
  if (req.method === 'POST') return (await query(CREATE, name, email))[0];
  return (await query(CHANGE, id, name, email))[0];
}

async function readBody(req: IncomingMessage): Promise<{ name?: string; email?: string }> {
  let text = '';
  for await (const chunk of req.setEncoding('utf8')) text += chunk;
  return JSON.parse(text);
}

function postgresQuery(): Query {
  const sql = postgres(url);
  return (text, ...values) => sql.unsafe(text, values, { prepare: true });
}

function sqliteQuery(): Query {
  const db = new DatabaseSync(url.replace('sqlite:', ''));
  db.exec(`
    pragma journal_mode = wal;
    pragma synchronous = full;
    pragma busy_timeout = 5000;
    create table if not exists users (
      id integer primary key autoincrement, name text not null, email text not null unique) strict;
  `);
  const all = [LIST, FIND, CREATE, CHANGE, REMOVE];
  const statements = new Map(all.map((text) => [text, db.prepare(text.replaceAll('$', '?'))]));
  // all(), because get() would hide a failed commit.
  return (text, ...values) => statements.get(text)!.all(...values);
}
