// Records the responses that clients got, in the test's process, to compare them with the database.
// A write with an unknown outcome (a 500, or no response) may have been done, but never twice.

export interface Row {
  readonly id: number;
  readonly name: string;
  readonly email: string;
  /** Grows by one with every change, so it shows a change that was done twice. */
  readonly version: number;
}

/** A user as its client sees it. The email identifies the user. */
export interface Entry {
  readonly email: string;
  id: number | undefined;
  /** The name of the last acknowledged write. */
  name: string;
  changes: number;
  /** The name of a write with an unknown outcome. */
  unknownName: string | undefined;
  removal: 'none' | 'unknown' | 'acknowledged';
}

/** Violations, one sentence each. */
interface Findings {
  readonly lost: readonly string[];
  readonly duplicated: readonly string[];
}

export class Ledger {
  readonly entries = new Map<string, Entry>();
  /** Writes that got 201 or 200. */
  acknowledged = 0;

  /** Call it before the request is sent. */
  asked(email: string, name: string): Entry {
    const entry: Entry = {
      email,
      id: undefined,
      name,
      changes: 0,
      unknownName: undefined,
      removal: 'none',
    };
    this.entries.set(email, entry);
    return entry;
  }

  created(entry: Entry, id: number): void {
    entry.id = id;
    this.acknowledged++;
  }

  changed(entry: Entry, name: string): void {
    entry.name = name;
    entry.unknownName = undefined;
    entry.changes++;
    this.acknowledged++;
  }

  removed(entry: Entry): void {
    entry.removal = 'acknowledged';
    this.acknowledged++;
  }

  /** Compares all entries with the rows of the database. */
  check(rows: readonly Row[]): Findings {
    const lost: string[] = [];
    const duplicated: string[] = [];
    const byEmail = new Map(rows.map((row) => [row.email, row]));
    if (byEmail.size < rows.length) duplicated.push('an email is there twice');
    const owners = new Map<number, string>();
    for (const entry of this.entries.values()) {
      const { id, email, removal } = entry;
      if (id !== undefined) {
        const owner = owners.get(id);
        if (owner !== undefined) duplicated.push(`id ${id} was given to ${owner} and ${email}`);
        owners.set(id, email);
      }
      const row = byEmail.get(email);
      if (row === undefined) {
        if (id !== undefined && removal === 'none') lost.push(`${email}: its creation`);
      } else if (removal === 'acknowledged') lost.push(`${email}: its removal`);
      else if (id !== undefined) this.#checkRow(row, entry, lost, duplicated);
    }
    for (const { id, email } of rows) {
      const owner = owners.get(id) ?? email;
      if (owner !== email) duplicated.push(`id ${id} of ${owner} was given again to ${email}`);
      if (!this.entries.has(email)) duplicated.push(`${email} was never asked for`);
    }
    return { lost, duplicated };
  }

  #checkRow(row: Row, entry: Entry, lost: string[], duplicated: string[]): void {
    const { email, id, name, unknownName, changes } = entry;
    if (row.id !== id) duplicated.push(`${email} was created as ${id} and as ${row.id}`);
    const extra = row.version - 1 - changes;
    if (extra < 0) lost.push(`${email}: a change`);
    if (extra > (unknownName === undefined ? 0 : 1)) duplicated.push(`${email}: a change`);
    const expected = extra === 0 ? name : unknownName;
    if (extra >= 0 && row.name !== expected) lost.push(`${email}: the name ${expected}`);
  }
}
