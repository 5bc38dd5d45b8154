// Calls of the contract as JSON (proto/dragoman/v1/translation.proto), and its server-sent events.

/** An answer that is an error: the server's google.rpc.Status, or that no server answered. */
export class ApiError extends Error {
  constructor(message, { http = 0, code = 0, details = [], retrySeconds = null } = {}) {
    super(message);
    this.http = http; // 0: no answer
    this.code = code; // of google.rpc.Code
    this.fields = details.flatMap(({ fieldViolations = [] }) => fieldViolations.map(({ field }) => field));
    this.retrySeconds = retrySeconds;
  }
}

let apiKey = ""; // kept nowhere else

/** Send a key with every call from now on. */
export function useKey(key) {
  apiKey = key.trim();
}

/** GET a path. */
export function get(path, signal) {
  return request(path, { signal }).then(read);
}

/** POST a message. */
export function post(path, message, signal) {
  return request(path, { ...posting(message), signal }).then(read);
}

/** POST a message, and yield the messages of the stream that answers. */
export async function* stream(path, message, signal) {
  const response = await request(path, { ...posting(message), signal });
  for await (const { name, data } of events(response.body.pipeThrough(new TextDecoderStream()))) {
    const answer = JSON.parse(data);
    if (name === "error") throw new ApiError(answer.message, { http: response.status, code: answer.code });
    yield answer;
  }
}

function posting(message) {
  return {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(message),
  };
}

async function request(path, options) {
  const headers = { ...options.headers, ...(apiKey && { "x-api-key": apiKey }) };
  let response;
  try {
    // Relative to the page, which a proxy may serve under a path of its own.
    response = await fetch(path.replace(/^\//, ""), { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The server can't be reached.");
  }
  if (response.ok) return response;
  const status = await response.json().catch(() => ({}));
  const seconds = Number.parseFloat(response.headers.get("retry-after"));
  throw new ApiError(status.message || `The server answered ${response.status}.`, {
    http: response.status,
    code: status.code ?? 0,
    details: status.details,
    retrySeconds: Number.isNaN(seconds) ? null : seconds,
  });
}

async function read(response) {
  try {
    return await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The connection was lost.");
  }
}

async function* events(chunks) {
  let rest = "";
  const reader = chunks.getReader();
  for (;;) {
    let chunk;
    try {
      chunk = await reader.read();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ApiError("The connection was lost.");
    }
    if (chunk.done) return;
    const parts = (rest + chunk.value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const event = { name: "message", data: "" };
      for (const line of part.split("\n")) {
        if (line.startsWith("event: ")) event.name = line.slice(7);
        if (line.startsWith("data: ")) event.data += line.slice(6);
      }
      if (event.data) yield event;
    }
  }
}
