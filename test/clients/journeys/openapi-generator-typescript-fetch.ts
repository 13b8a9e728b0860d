// The journey with the client from openapi-generator for TypeScript's fetch. Prints it as JSON.
import { AccessApi, Configuration, type ResponseError, UsersApi } from './api/index';

const [basePath = '', username = '', password = ''] = process.argv.slice(2);

async function main(): Promise<void> {
  const anyone = new Configuration({ basePath });
  const basic = new Configuration({ basePath, username, password });
  const access = new AccessApi(anyone);
  const { token } = await access.issueToken({ credentials: { id: username, pw: password } });
  const bearer = new Configuration({ basePath, accessToken: token });

  const users = new UsersApi(bearer);
  const userFields = { name: 'Ada', email: 'ada@example.com' };
  const created = await users.createUserRaw({ userFields });
  const { id, email } = await created.value();
  const ifMatch = created.raw.headers.get('ETag') ?? '';
  const userChange = { name: 'Ada Lovelace' };
  const patched = await users.patchUserRaw({ id, userChange, ifMatch });
  const stale = await users
    .patchUser({ id, userChange, ifMatch })
    .catch(async ({ response }: ResponseError) => [response.status, await response.text()]);

  await users.createUser({ userFields: { name: 'Bob', email: 'bob@example.com' } });
  const page = await users.listUsersRaw({ limit: 1, after: 0 });
  const [first] = await page.value();
  const journey = {
    protected: await new AccessApi(basic).greetCaller(),
    created: [created.raw.status, email, ifMatch],
    patched: [patched.raw.status, (await patched.value()).name, patched.raw.headers.get('ETag')],
    stale,
    page: [first?.name, page.raw.headers.get('Link')],
  };
  console.log(JSON.stringify(journey));
}

main();
