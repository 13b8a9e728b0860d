// Bare node:http and node:sqlite, durable (WAL, synchronous=FULL), one commit a request.
import { createServer } from 'node:http';
import { DatabaseSync } from 'node:sqlite';

const path = String(process.env.DATABASE_URL).replace('sqlite:', '');
const db = new DatabaseSync(path);
db.exec(`
  pragma journal_mode = wal;
  pragma synchronous = full;
  create table users (
    id integer primary key autoincrement, name text not null, email text not null unique) strict;
`);
const insert = db.prepare(
  'insert into users (name, email) values (?, ?) returning id, name, email',
);

createServer(async (req, res) => {
  let text = '';
  for await (const chunk of req.setEncoding('utf8')) text += chunk;
  const { name, email } = JSON.parse(text || '{}');
  const user = req.method === 'POST' ? insert.get(name, email) : {};
  const body = JSON.stringify(user);
  res.writeHead(req.method === 'POST' ? 201 : 200, {
    'Content-Type': 'application/json',
    'Content-Length': Buffer.byteLength(body),
  });
  res.end(body);
}).listen(Number(process.env.PORT), '127.0.0.1');
