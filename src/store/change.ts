// Changing and removing users in Postgres, with the conditions of If-Match and If-None-Match: they
// are part of the one statement that writes, so no read comes before it.
import {
  ALWAYS,
  type Changed,
  type Condition,
  EmailTaken,
  StoreUnavailable,
  type User,
  type UserChange,
  type Versions,
} from '../user.ts';
import type { Session } from './connection.ts';
import { array, byKey, IN_TIME, isLost, isTooLate, query, UNIQUE_VIOLATION } from './statement.ts';

/** One conditional change or removal. */
export interface Target extends UserChange {
  readonly id: number;
  readonly condition: Condition;
}

/** A row of a conditional statement; without a name the user stayed as it was. */
type Row = Omit<User, 'name'> & { readonly name: string | null; readonly isMet?: boolean };

// 4.16
const SET_FIELDS = `
  name = coalesce(i.name, u.name),
  email = coalesce(i.email, u.email),
  version = case
    when (coalesce(i.name, u.name), coalesce(i.email, u.email)) = (u.name, u.email) then u.version
    else u.version + 1
  end`;
const COLUMNS = 'u.id, u.name, u.email, u.version';

// 4.8: conditions are texts, the versions between commas, or * for any.
const IS_MET = `
  (one_of = '*' or position(',' || u.version || ',' in one_of) > 0)
  and none_of <> '*' and position(',' || u.version || ',' in none_of) = 0`;
// After the users that were changed, those that stayed as they were when the statement began. One
// that met the condition then was changed or removed by another meanwhile.
const WITH_UNCHANGED = `
  select id, name, email, version, false as "isMet" from changed
  union all
  select u.id, null, null, u.version, ${IS_MET} from users u join input i on i.id = u.id
  where not exists (select from changed c where c.id = u.id)`;

/** How users are changed or removed. */
interface Write {
  /** Parameters: the time, the ids, the two lists of the conditions, the fields. */
  readonly conditional: string;
  /** The same without conditions, where a user that does not come back is not there. */
  readonly unconditional: string;
  readonly fields: (targets: readonly Target[]) => readonly string[];
}

const CHANGE: Write = {
  conditional: `
    with input as (
      select * from unnest($2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[])
        as new (id, one_of, none_of, name, email)
      where ${IN_TIME} order by id
    ), changed as (
      update users u set ${SET_FIELDS} from input i where u.id = i.id and ${IS_MET}
      returning ${COLUMNS}
    ) ${WITH_UNCHANGED}`,
  unconditional: `
    update users u set ${SET_FIELDS} from (
      select * from unnest($2::bigint[], $3::text[], $4::text[]) as new (id, name, email)
      where ${IN_TIME} order by id
    ) i where u.id = i.id
    returning ${COLUMNS}`,
  fields: (targets) => [
    array(targets.map(({ name }) => name)),
    array(targets.map(({ email }) => email)),
  ],
};

const REMOVE: Write = {
  conditional: `
    with input as (
      select * from unnest($2::bigint[], $3::text[], $4::text[]) as new (id, one_of, none_of)
      where ${IN_TIME} order by id
    ), changed as (
      delete from users u using input i where u.id = i.id and ${IS_MET}
      returning ${COLUMNS}
    ) ${WITH_UNCHANGED}`,
  unconditional: `
    delete from users u using (
      select id from unnest($2::bigint[]) as new (id) where ${IN_TIME} order by id
    ) i where u.id = i.id
    returning ${COLUMNS}`,
  fields: () => [],
};

/** Changes the users of the targets; an Error in place of a result is that target's alone. */
export async function change(
  session: Session,
  targets: Target[],
  expires: number,
): Promise<(Changed | Error)[]> {
  try {
    return await write(session, CHANGE, targets, expires);
  } catch (err) {
    // In a batch this rolls all of it back, and its calls run one by one: only one is to blame.
    if (targets.length > 1 || !isTaken(err)) throw err;
    return [new EmailTaken()];
  }
}

/** The same for removing them. */
export function remove(
  session: Session,
  targets: Target[],
  expires: number,
): Promise<(Changed | Error)[]> {
  return write(session, REMOVE, targets, expires);
}

async function write(
  session: Session,
  kind: Write,
  targets: Target[],
  expires: number,
): Promise<(Changed | Error)[]> {
  const isConditional = targets.some(({ condition }) => condition !== ALWAYS);
  const conditions = [
    array(targets.map(({ condition }) => versionList(condition.oneOf))),
    array(targets.map(({ condition }) => versionList(condition.noneOf))),
  ];
  const rows = await query<Row>(session, isConditional ? kind.conditional : kind.unconditional, [
    String(session.serverSeconds(expires)),
    array(targets.map(({ id }) => id)),
    ...(isConditional ? conditions : []),
    ...kind.fields(targets),
  ]);
  const byId = byKey(rows, ({ id }) => id);
  const results: (Changed | Error)[] = [];
  for (const target of targets) {
    const row = byId.get(target.id);
    if (row === undefined) results.push(undefined);
    else if (row.isMet) results.push(await again(session, kind, target, expires));
    else if (row.name === null) results.push('stale');
    else results.push({ id: row.id, name: row.name, email: row.email, version: row.version });
  }
  return results;
}

/**
 * Another has changed or removed the user meanwhile and nothing was done: it is done now, to the
 * user as the other has left it. The rest of the batch is committed: a fault is this call's alone.
 */
async function again(
  session: Session,
  kind: Write,
  target: Target,
  expires: number,
): Promise<Changed | Error> {
  try {
    return (await write(session, kind, [target], expires))[0];
  } catch (err) {
    // What the batch has done already must not be run again with it (contract 4.13).
    if (isLost(err) && !isTooLate(err)) throw err;
    return isTaken(err)
      ? new EmailTaken()
      : new StoreUnavailable('the store failed', { cause: err });
  }
}

function isTaken(err: unknown): boolean {
  return (err as { code?: string }).code === UNIQUE_VIOLATION;
}

function versionList(versions: Versions): string {
  return versions === 'any' ? '*' : `,${versions.join(',')},`;
}
