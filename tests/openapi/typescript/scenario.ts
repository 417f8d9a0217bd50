// The scenario of tests/openapi/scenario.py, by openapi-fetch with the types that openapi-typescript
// makes. Prints what it observed as JSON; `undefined` where there is no such member, which no
// comparison overlooks. Everything read from an answer is typed: a member that openapi.yaml doesn't
// have ends the build.

import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

declare const process: { argv: string[] }; // of Node.js, whose types are of no other use here

type Problem = components["schemas"]["Problem"];
type WriteAnswer = components["schemas"]["WriteAnswer"];

const [, , baseUrl, catalog] = process.argv;
if (baseUrl === undefined || catalog === undefined) {
  throw new Error("usage: scenario.js URL CATALOG");
}
const key = "tables/orders";
const client = createClient<paths>({ baseUrl });
const document = "/v1/catalogs/{catalog}/documents/{key}" as const;
const path = { catalog, key };
const observed: Record<string, unknown> = {};

function etag(response: Response): string {
  const token = response.headers.get("ETag");
  if (token === null) throw new Error("no ETag");
  return token;
}

function must<T>(value: T | undefined, error: unknown): T {
  if (value === undefined) throw new Error(`no answer but ${JSON.stringify(error)}`);
  return value;
}

// `WriteAnswer`, or the document where `Prefer` asks for it: these requests don't.
function written(value: unknown, error: unknown): WriteAnswer {
  return must(value, error) as WriteAnswer;
}

const created = await client.PUT(document, {
  params: { path, header: { "If-None-Match": "*" } },
  body: { name: "orders", fields: ["id"], owner: null },
});
const creation = written(created.data, created.error);
observed["create"] = [created.response.status, creation.changed, creation.revision, creation.key];

const read = await client.GET(document, { params: { path } });
observed["read"] = [read.response.status, read.data];

const again = await client.GET(document, {
  params: { path, header: { "If-None-Match": etag(read.response) } },
});
observed["not_modified"] = again.response.status;

const patched = await client.PATCH(document, {
  params: { path },
  headers: { "Content-Type": "application/json-patch+json" },
  body: [
    { op: "test", path: "/name", value: "orders" },
    { op: "add", path: "/fields/-", value: "total" },
    { op: "add", path: "/limits", value: { rows: null } },
  ],
});
const patch = written(patched.data, patched.error);
observed["patch"] = [patched.response.status, patch.changed, patch.rebased_from];

const failed = await client.PATCH(document, {
  params: { path },
  headers: { "Content-Type": "application/json-patch+json" },
  body: [{ op: "test", path: "/name", value: "customers" }],
});
const refusal: Problem = must(failed.error, failed.data);
observed["failed_test"] = [
  ...[failed.response.status, refusal.code, refusal.applied, refusal.retryable],
  ...[refusal.operation, refusal.pointer, refusal.expected, refusal.actual],
];

const before = await client.GET(document, { params: { path } });
const guarded = { path, header: { "If-Match": etag(before.response) } };
const won = await client.PUT(document, { params: guarded, body: { name: "orders", n: 1 } });
const lost = await client.PUT(document, { params: guarded, body: { name: "orders", n: 2 } });
const stale: Problem = must(lost.error, lost.data);
observed["compare_and_set"] = [
  ...[won.response.status, lost.response.status, stale.code],
  stale.current?.etag === written(won.data, won.error).etag,
  stale.changes_since?.map((each) => each.action),
];

const transacted = await client.POST("/v1/catalogs/{catalog}/transactions", {
  params: { path: { catalog } },
  body: {
    compare: [
      { key, test: [{ op: "less", path: "/n", value: 5 }] },
      { key: "tables/clients", absent: true },
    ],
    then: [
      { action: "patch", key, patch: [{ op: "increment", path: "/n" }] },
      { action: "put", key: "tables/clients", value: { name: "clients" } },
    ],
  },
});
const transaction = must(transacted.data, transacted.error);
observed["transaction"] = [
  ...[transaction.succeeded, transaction.changed],
  transaction.results?.map((each) => [each.action, each.key, each.exists]),
];

const named = { catalog: `${catalog}, attributes`, key };
await client.PUT(document, { params: { path: named }, body: 1 });
const attributes = "/v1/catalogs/{catalog}/attributes/{key}" as const;
const given = await client.PUT(attributes, { params: { path: named }, body: { team: "sales" } });
const described = await client.GET(attributes, { params: { path: named } });
observed["attributes"] = [
  written(given.data, given.error).changed,
  must(described.data, described.error)["team"],
];

const bodies = `${catalog}, bodies`;
const mixed = await client.POST("/v1/catalogs/{catalog}/transactions", {
  params: { path: { catalog: bodies } },
  body: {
    then: [
      { action: "put", key, value: { name: "ann", n: 1 } },
      { action: "merge", key, value: { name: "Ann" } },
      { action: "patch", key, patch: [{ op: "increment", path: "/n", value: 2 }] },
      { action: "apply", key, value: { team: "a" }, manager: "nightly" },
    ],
  },
});
const patchedWithAll = { params: { path: { catalog: bodies, key } } };
const content = await client.GET(document, patchedWithAll);
const owners = await client.GET("/v1/catalogs/{catalog}/owners/{key}", patchedWithAll);
observed["bodies"] = [
  [must(mixed.data, mixed.error).succeeded, content.data],
  must(owners.data, owners.error)
    .owners.map((each) => [each.pointer, each.owners[0]?.manager])
    .filter(([, manager]) => manager === "nightly"),
];

type BulkLine = components["schemas"]["BulkLine"];
type BulkResult = components["schemas"]["BulkResult"];
const lines: BulkLine[] = [
  { catalog: bodies, key: "bulk", op: "put", value: { n: 1 } },
  { catalog: bodies, key: "bulk", op: "merge", value: { n: 2 } },
  { catalog: bodies, key: "bulk", op: "apply", value: { n: 3 }, manager: "nightly" },
  { catalog: bodies, key: "bulk", op: "apply", value: { n: 4 }, manager: "weekly" },
];
const bulk = await client.POST("/v1/bulk", {
  body: lines.map((line) => JSON.stringify(line)).join("\n"),
  bodySerializer: (text: string) => text,
  headers: { "Content-Type": "application/x-ndjson" },
  parseAs: "text",
});
observed["bulk"] = must(bulk.data, bulk.error)
  .trim()
  .split("\n")
  .map((line) => JSON.parse(line) as BulkResult)
  .map((each) => [each.status, each.changed ?? each.problem?.code]);

const listed = await client.GET("/v1/catalogs/{catalog}/documents", {
  params: { path: { catalog }, query: { prefix: "tables/", limit: 10 } },
});
const page = must(listed.data, listed.error);
observed["listing"] = [page.documents.map((each) => [each.key, each.value]), page.next];

const told = await client.GET("/v1/catalogs/{catalog}/commits", {
  params: { path: { catalog }, query: { after: 0 } },
});
const history = must(told.data, told.error);
observed["history"] = [
  history.commits.map((each) => [
    each.revision,
    each.changes.map((change) => [change.key, change.action]),
  ]),
  history.commits[1]?.changes[0]?.patch?.map((each) => each.op),
];

console.log(JSON.stringify(observed));
