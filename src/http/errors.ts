// Every fault becomes a plain-text reply here, and only here.
// Details of a fault on our side go to the log, never to the client.
import { STATUS_CODES } from 'node:http';
import { EmailTaken, InvalidUser } from '../user.ts';
import { type Reply, text } from './reply.ts';

/** A request that is answered with an error status. */
export class HttpError extends Error {
  override readonly name = 'HttpError';
  readonly status: number;
  /** Flat list of header names and values. */
  readonly headers: readonly string[];

  /** `message` is one sentence for the client; the default is the status text (RFC 9110 §15). */
  // 2.1
  constructor(status: number, message = STATUS_CODES[status], headers: readonly string[] = []) {
    super(message);
    this.status = status;
    this.headers = headers;
  }
}

/** The plain-text reply for anything thrown. What is not known is our fault: 500. */
export function errorReply(err: unknown): Reply {
  if (err instanceof HttpError) return text(err.status, err.message, err.headers);
  if (err instanceof InvalidUser) return text(400, err.message);
  if (err instanceof EmailTaken) return text(400, 'Another user has this email.'); // 4.10
  return text(500, 'Internal Server Error'); // 2.1, 2.9
}
