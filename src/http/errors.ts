// An error that is a response in plain text.
import { STATUS_CODES } from 'node:http';

export class HttpError extends Error {
  override readonly name = 'HttpError';
  readonly status: number;
  readonly headers: readonly string[]; // a flat list of names and values

  /** `message` is one sentence for the client (2.1). Default: the status text (RFC 9110 §15). */
  constructor(status: number, message = STATUS_CODES[status], headers: readonly string[] = []) {
    super(message);
    this.status = status;
    this.headers = headers;
  }
}
