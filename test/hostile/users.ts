// Users in the databases of the hostile tests, inserted without the service.
import { DatabaseSync } from 'node:sqlite';
import { query } from '../faults/users.ts';

/** The longest valid name. */
export const LONG_NAME = '𝒩'.repeat(100);

/** Inserts users with one name into a database with its schema. */
export async function addUsers(databaseUrl: string, count: number, name: string): Promise<void> {
  if (databaseUrl.startsWith('sqlite:')) {
    const db = new DatabaseSync(databaseUrl.slice('sqlite:'.length), { timeout: 5000 });
    db.exec(
      `with recursive n (i) as (select 1 union all select i + 1 from n where i < ${count})
       insert into users (name, email) select '${name}', 'listed-' || i || '@example.com' from n`,
    );
    db.close();
    return;
  }
  await query(
    databaseUrl,
    `insert into users (name, email)
     select '${name}', 'listed-' || i || '@example.com' from generate_series(1, ${count}) i`,
  );
}
