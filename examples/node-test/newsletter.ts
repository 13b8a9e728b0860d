// Code of an application that calls the service. The suite tests it.

export interface Subscriber {
  readonly id: number;
  readonly name: string;
  readonly email: string;
}

/** A client of the service at a base URL. */
export class Newsletter {
  readonly #url: string;

  constructor(url: string) {
    this.#url = url;
  }

  /** Resolves with the subscriber who has the email, creating one if necessary. */
  async subscribe(name: string, email: string): Promise<Subscriber> {
    const res = await fetch(`${this.#url}/users`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ name, email }),
    });
    if (res.ok) return res.json() as Promise<Subscriber>;
    const reason = await res.text();
    const known = await this.find(email).catch(() => undefined);
    if (known === undefined) throw new Error(reason);
    return known;
  }

  /** Resolves with undefined if no subscriber has the email. */
  async find(email: string): Promise<Subscriber | undefined> {
    const res = await fetch(`${this.#url}/users?email=${encodeURIComponent(email)}`);
    if (!res.ok) throw new Error(await res.text());
    const [found] = (await res.json()) as Subscriber[];
    return found;
  }

  /** Resolves with false if the subscriber did not exist. */
  async unsubscribe({ id }: Subscriber): Promise<boolean> {
    const res = await fetch(`${this.#url}/users/${id}`, { method: 'DELETE' });
    if (!res.ok && res.status !== 404) throw new Error(await res.text());
    return res.ok;
  }

  /** Resolves with the text of the current issue. */
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
