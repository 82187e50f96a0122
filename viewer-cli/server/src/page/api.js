// Questions to the server. Times are BigInt nanoseconds: numbers are exact up to 2^53 only.

/** An answer that is an error. */
export class ServerError extends Error {
  /** @param {number} status @param {string} why */
  constructor(status, why) {
    super(why);
    this.status = status;
  }
}

/**
 * Asks the server.
 * @param {string} path @param {AbortSignal} [signal]
 */
const get = async (path, signal) => {
  const response = await fetch(`api/v1/traces${path}`, { signal, credentials: 'same-origin' });
  if (response.ok) return response;
  let why = response.statusText;
  try {
    why = (await response.json()).error;
  } catch {
    // The status says enough.
  }
  throw new ServerError(response.status, why);
};

const MOST = (1n << 63n) - 1n;

/** Times that no trace has are outside of 64 bits: the view may begin before them and end after. @param {string | number | bigint} value */
const within = (value) => (typeof value !== 'bigint' ? value : value > MOST ? MOST : value < -MOST ? -MOST : value);

/** @param {string} path @param {Record<string, string | number | bigint>} [query] @param {AbortSignal} [signal] @returns {Promise<any>} */
export const ask = async (path, query = {}, signal) => {
  const text = Object.entries(query).map(([name, value]) => `${name}=${encodeURIComponent(String(within(value)))}`).join('&');
  return (await get(path + (text && `?${text}`), signal)).json();
};

/** @param {string} path @param {AbortSignal} [signal] */
export const askBytes = async (path, signal) => (await get(path, signal)).arrayBuffer();
