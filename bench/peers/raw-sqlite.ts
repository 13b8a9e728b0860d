// Bare node:http and node:sqlite, durable (WAL, synchronous=FULL): no routing library, no
// validation, one statement and one commit per request.
import { createServer, type IncomingMessage } from 'node:http';
import { DatabaseSync } from 'node:sqlite';

const SQLITE_CONSTRAINT_UNIQUE = 2067;

const db = new DatabaseSync(String(process.env.DATABASE_URL).replace('sqlite:', ''));
db.exec(`
  pragma journal_mode = wal;
  pragma synchronous = full;
  pragma busy_timeout = 5000;
  create table if not exists users (
    id integer primary key autoincrement, name text not null, email text not null unique) strict;
`);
const all = db.prepare('select id, name, email from users order by id');
const byId = db.prepare('select id, name, email from users where id = ?');
const insert = db.prepare(
  'insert into users (name, email) values (?, ?) returning id, name, email',
);
const update = db.prepare(`
  update users set name = coalesce(?, name), email = coalesce(?, email)
  where id = ? returning id, name, email`);
const remove = db.prepare('delete from users where id = ? returning id, name, email');

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
    const isTaken = (err as { errcode?: number }).errcode === SQLITE_CONSTRAINT_UNIQUE;
    res.writeHead(isTaken ? 400 : 500).end();
  }
}).listen(Number(process.env.PORT));

async function answer(req: IncomingMessage): Promise<unknown> {
  const url = String(req.url);
  if (url === '/') return 'Hello, World!';
  if (url === '/users' && req.method === 'GET') return all.all();
  const id = Number(url.slice('/users/'.length));
  if (req.method === 'GET') return byId.get(id);
  // all(), because get() would hide a failed commit.
  if (req.method === 'DELETE') return remove.all(id)[0];
  const { name = null, email = null } = await readBody(req);
  if (req.method === 'POST') return insert.all(name, email)[0];
  return update.all(name, email, id)[0];
}

async function readBody(req: IncomingMessage): Promise<{ name?: string; email?: string }> {
  let text = '';
  for await (const chunk of req.setEncoding('utf8')) text += chunk;
  return JSON.parse(text);
}
