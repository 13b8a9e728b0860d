// What the database must have after the responses that clients got. A write with an unknown outcome (a 500, or
// no response) may have been done, but never twice.
import { execute } from '../support/service.ts';

export const ABSENT = 'absent';

/** A user as its client sees it. The email identifies it. */
export interface Entry {
  readonly email: string;
  id?: number;
  /** Its version and name, or ABSENT; two after a write of unknown outcome. A version shows a change done twice. */
  states: readonly string[];
}

export class Ledger {
  /** Writes that got 201 or 200. */
  acknowledged = 0;
  readonly #entries = new Map<string, Entry>();

  add(email: string): Entry {
    const entry = { email, states: [ABSENT] };
    this.#entries.set(email, entry);
    return entry;
  }

  /** Returns what is lost, or done twice, in the database. */
  async check(databaseUrl: string): Promise<string[]> {
    const rows = await execute(databaseUrl, 'select id, version, name, email from users');
    const faults = rows
      .filter(({ email }) => !this.#entries.has(String(email)))
      .map(({ email }) => `${email} was never asked for`);
    const byEmail = new Map(rows.map((row) => [row.email, row]));
    if (byEmail.size < rows.length) faults.push('an email is there twice');
    const owners = new Map<number, string>();
    for (const { email, id, states } of this.#entries.values()) {
      const row = byEmail.get(email);
      const state = row ? `${row.version} ${row.name}` : ABSENT;
      if (!states.includes(state)) faults.push(`${email} is ${state}, not ${states}`);
      const found = row && Number(row.id);
      const given = id ?? found;
      if (given !== undefined && owners.has(given)) {
        faults.push(`${email} and ${owners.get(given)} got the id ${given}`);
      }
      if (given !== undefined) owners.set(given, email);
      if (found !== undefined && found !== given) faults.push(`${email} got two ids`);
    }
    return faults;
  }
}
