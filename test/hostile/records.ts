// Writes TLS 1.3 records without a TLS stack, from the client's traffic secret (RFC 8446 §5.2, §7.1, §7.2).
import { createCipheriv, createHmac } from 'node:crypto';

/** The cipher of the records. Offer no other. */
export const RECORD_CIPHER = 'TLS_AES_128_GCM_SHA256';

const HANDSHAKE = 22;
const DATA = 23;
const UPDATE_REQUESTED = Buffer.of(24, 0, 0, 1, 1);
const TAG_BYTES = 16;

/** Returns the traffic secret in a line of a TLS socket's `keylog`; undefined if it has another one. */
export function trafficSecret(line: Buffer): Buffer | undefined {
  const [label, , hex] = String(line).trim().split(' ');
  return label === 'CLIENT_TRAFFIC_SECRET_0' ? Buffer.from(hex!, 'hex') : undefined;
}

export class Records {
  #secret: Buffer;
  #key!: Buffer;
  #iv!: Buffer;
  #sequence = 0;

  constructor(secret: Buffer) {
    this.#secret = secret;
    this.#derive();
  }

  seal(content: Buffer, type = DATA): Buffer {
    const bytes = content.length + 1 + TAG_BYTES;
    const header = Buffer.of(DATA, 3, 3, bytes >> 8, bytes & 255);
    const nonce = Buffer.from(this.#iv);
    nonce.writeUInt32BE((nonce.readUInt32BE(8) ^ this.#sequence++) >>> 0, 8);
    const cipher = createCipheriv('aes-128-gcm', this.#key, nonce).setAAD(header);
    const sealed = cipher.update(Buffer.concat([content, Buffer.of(type)]));
    cipher.final();
    return Buffer.concat([header, sealed, cipher.getAuthTag()]);
  }

  /** Records with `update_requested`, each of which changes the key of the next. */
  keyUpdates(count: number): Buffer {
    const records: Buffer[] = [];
    for (let i = 0; i < count; i++) {
      records.push(this.seal(UPDATE_REQUESTED, HANDSHAKE));
      this.#secret = expand(this.#secret, 'traffic upd', 32);
      this.#derive();
    }
    return Buffer.concat(records);
  }

  #derive(): void {
    this.#key = expand(this.#secret, 'key', 16);
    this.#iv = expand(this.#secret, 'iv', 12);
    this.#sequence = 0;
  }
}

/** HKDF-Expand-Label of one block, with SHA-256. */
function expand(secret: Buffer, label: string, length: number): Buffer {
  const name = Buffer.from(`tls13 ${label}`);
  const info = Buffer.concat([Buffer.of(0, length, name.length), name, Buffer.of(0, 1)]);
  return createHmac('sha256', secret).update(info).digest().subarray(0, length);
}
