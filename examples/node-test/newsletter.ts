// An application's own code that talks to the service: what its test suite is about.

/** One who gets the newsletter. */
export interface Subscriber {
  readonly id: number;
  readonly name: string;
  readonly email: string;
}

/** A client of the service at that base URL. */
export class Newsletter {
  readonly #url: string;

  constructor(url: string) {
    this.#url = url;
  }

  /** Resolves with the one who has the email, whether new or known before. */
  async subscribe(name: string, email: string): Promise<Subscriber> {
    const res = await fetch(`${this.#url}/users`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ name, email }),
    });
    if (res.ok) return res.json() as Promise<Subscriber>;
    const reason = await res.text();
    const known = await this.find(email);
    if (known === undefined) throw new Error(reason);
    return known;
  }

  /** Resolves with the one who has the email. */
  async find(email: string): Promise<Subscriber | undefined> {
    const res = await fetch(`${this.#url}/users?email=${encodeURIComponent(email)}`);
    if (!res.ok) throw new Error(await res.text());
    const [found] = (await res.json()) as Subscriber[];
    return found;
  }

  /** Whether there was such a subscriber. */
  async unsubscribe({ id }: Subscriber): Promise<boolean> {
    const res = await fetch(`${this.#url}/users/${id}`, { method: 'DELETE' });
    if (!res.ok && res.status !== 404) throw new Error(await res.text());
    return res.ok;
  }

  /** Resolves with the text of the current issue, for the editor who knows the password. */
  async preview(id: string, pw: string): Promise<string> {
    const login = await fetch(`${this.#url}/token`, {
      method: 'POST',
      body: new URLSearchParams({ id, pw }),
    });
    if (!login.ok) throw new Error(await login.text());
    const { token } = (await login.json()) as { token: string };
    const headers = { authorization: `Bearer ${token}` };
    const note = await fetch(`${this.#url}/notes`, { headers });
    if (!note.ok) throw new Error(await note.text());
    return ((await note.json()) as { contents: string }).contents;
  }
}
