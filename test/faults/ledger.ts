// The ledger of acknowledgements. It is kept outside the service, by the process of the test: what
// a client was told, to be held against what the database has. What the client does not know (an
// answer 500, or none) may have been done or not, but never twice.

/** A user as the database has it. */
export interface Row {
  readonly id: number;
  readonly name: string;
  readonly email: string;
  /** Grows by one with every change, so a change that was done twice shows. */
  readonly version: number;
}

/** What one user's client knows; the email names the user. */
export interface Entry {
  readonly email: string;
  id: number | undefined;
  /** The name that the last acknowledged write gave. */
  name: string;
  changes: number;
  /** The name that a write without a clear answer may have given. */
  unknownName: string | undefined;
  removal: 'none' | 'unknown' | 'acknowledged';
}

/** What the ledger finds wrong, one sentence each. */
export interface Findings {
  readonly lost: readonly string[];
  readonly duplicated: readonly string[];
}

/** All that was asked for and answered. */
export class Ledger {
  readonly entries = new Map<string, Entry>();
  /** Writes that were answered 201 or 200. */
  acknowledged = 0;
  /** Writes that may have been done or not. */
  unknown = 0;

  /** Before the request goes out. */
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

  /** Emails whose creation was neither acknowledged nor refused. */
  get unknownCreations(): string[] {
    return [...this.entries.values()].filter(({ id }) => id === undefined).map((e) => e.email);
  }

  /** How often its row can have been written at most. */
  most(email: string): number {
    const { changes, unknownName, removal } = this.entries.get(email)!;
    return 1 + changes + (unknownName === undefined ? 0 : 1) + (removal === 'none' ? 0 : 1);
  }

  /** Holds all entries, or those of some emails, against the rows of the database. */
  check(rows: readonly Row[], entries: Iterable<Entry> = this.entries.values()): Findings {
    const lost: string[] = [];
    const duplicated: string[] = [];
    const byEmail = new Map(rows.map((row) => [row.email, row]));
    if (byEmail.size < rows.length) duplicated.push('an email is there twice');
    const owners = new Map<number, string>();
    for (const entry of entries) {
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
