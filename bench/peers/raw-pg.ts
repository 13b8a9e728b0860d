// Bare node:http and one `postgres` query per request: no routing library, no validation. The upper
// bound for one statement per request with this driver.
import { createServer, type IncomingMessage } from 'node:http';
import postgres from 'postgres';

const sql = postgres(String(process.env.DATABASE_URL));

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
    res.writeHead(err instanceof postgres.PostgresError && err.code === '23505' ? 400 : 500).end();
  }
}).listen(Number(process.env.PORT));

async function answer(req: IncomingMessage): Promise<unknown> {
  const url = String(req.url);
  if (url === '/') return 'Hello, World!';
  if (url === '/users' && req.method === 'GET') {
    return sql`select id, name, email from users order by id`;
  }
  const id = Number(url.slice('/users/'.length));
  if (req.method === 'GET') {
    return (await sql`select id, name, email from users where id = ${id}`)[0];
  }
  if (req.method === 'DELETE') {
    return (await sql`delete from users where id = ${id} returning id, name, email`)[0];
  }
  const { name = null, email = null } = await readBody(req);
  if (req.method === 'POST') {
    const rows = await sql`
      insert into users (name, email) values (${name}, ${email}) returning id, name, email`;
    return rows[0];
  }
  const rows = await sql`
    update users set name = coalesce(${name}, name), email = coalesce(${email}, email)
    where id = ${id} returning id, name, email`;
  return rows[0];
}

async function readBody(req: IncomingMessage): Promise<{ name?: string; email?: string }> {
  let text = '';
  for await (const chunk of req.setEncoding('utf8')) text += chunk;
  return JSON.parse(text);
}
