// Types of packages as JSON schemas: node types.mjs '{"module": ["Type", …], …}'
import ts from "typescript";

const wanted = JSON.parse(process.argv[2]);
const folder = process.cwd();
const entry = `${folder}/entry.ts`;
const options = {
  module: ts.ModuleKind.NodeNext,
  moduleResolution: ts.ModuleResolutionKind.NodeNext,
  target: ts.ScriptTarget.ES2022,
  lib: ["lib.es2022.d.ts", "lib.dom.d.ts"],
  strict: true,
  exactOptionalPropertyTypes: true,
  types: [],
  noEmit: true,
};
const lines = Object.keys(wanted).map((module, at) => `export * as m${at} from ${JSON.stringify(module)};`);
const host = ts.createCompilerHost(options);
const { fileExists, readFile, getSourceFile } = host;
host.fileExists = (name) => name === entry || fileExists.call(host, name);
host.readFile = (name) => (name === entry ? lines.join("\n") : readFile.call(host, name));
host.getSourceFile = (name, ...rest) =>
  name === entry ? ts.createSourceFile(name, lines.join("\n"), ts.ScriptTarget.ES2022) : getSourceFile.call(host, name, ...rest);
const program = ts.createProgram([entry], options, host);
const checker = program.getTypeChecker();
const exported = (symbol) => checker.getExportsOfModule(checker.getAliasedSymbol(symbol));
const modules = checker.getExportsOfModule(checker.getSymbolAtLocation(program.getSourceFile(entry)));

// What is no JSON: functions, abort signals, streams. A field of it has no schema.
const isOfPrograms = (type) =>
  type.getCallSignatures().length > 0 ||
  (type.symbol?.declarations ?? []).some((each) => program.isSourceFileDefaultLibrary(each.getSourceFile()));

function reader() {
  const schemas = {};
  const names = new Map();

  function nameOf(type) {
    const symbol = type.aliasSymbol ?? type.symbol;
    let name = checker.getFullyQualifiedName(symbol).replace(/^".*?"\.|_\d$/g, ""); // Blob_2 beside the platform's
    while (name in schemas) name += "_";
    return name;
  }

  function properties(type) {
    const found = {};
    const required = [];
    for (const property of checker.getPropertiesOfType(type)) {
      if (property.flags & (ts.SymbolFlags.Method | ts.SymbolFlags.Accessor)) continue;
      const schema = read(checker.getTypeOfSymbol(property));
      if (schema === undefined) continue;
      found[property.name] = schema;
      if (!(property.flags & ts.SymbolFlags.Optional)) required.push(property.name);
    }
    return { properties: found, required };
  }

  function object(type) {
    const index = checker.getIndexInfoOfType(type, ts.IndexKind.String);
    const { properties: found, required } = properties(type);
    if (Object.keys(found).length === 0) {
      const additional = index && read(index.type);
      return { type: "object", ...(additional && { additionalProperties: additional }) };
    }
    return { type: "object", properties: found, required };
  }

  function read(type) {
    if (type.flags & (ts.TypeFlags.Undefined | ts.TypeFlags.Never)) return undefined;
    if (type.flags & ts.TypeFlags.Null) return { type: "null" };
    if (type.flags & ts.TypeFlags.BooleanLike) return { type: "boolean" };
    if (type.isStringLiteral() || type.isNumberLiteral()) return { enum: [type.value] };
    if (type.flags & ts.TypeFlags.StringLike) return { type: "string" };
    if (type.flags & ts.TypeFlags.NumberLike) return { type: "integer" }; // which a number may be everywhere
    if (type.flags & (ts.TypeFlags.Any | ts.TypeFlags.Unknown)) return {};
    if (type.isUnion()) return union(type.types);
    if (checker.isArrayType(type)) return { type: "array", items: read(checker.getTypeArguments(type)[0]) ?? {} };
    if (type.isIntersection() && type.types.some((each) => each.flags & ts.TypeFlags.StringLike)) return { type: "string" };
    if (type.symbol?.name === "__type" && (!type.aliasSymbol || type.aliasSymbol.name === "Record")) return object(type);
    if (isOfPrograms(type)) return type.symbol.name === "Date" ? { type: "string" } : undefined;
    if (!names.has(type)) {
      const name = nameOf(type);
      names.set(type, name);
      schemas[name] = {};
      schemas[name] = object(type);
    }
    return { $ref: `#/components/schemas/${names.get(type)}` };
  }

  function union(types) {
    const found = types.map(read).filter((each) => each !== undefined && each.type !== "null");
    const literals = found.filter((each) => "enum" in each).flatMap((each) => each.enum);
    const others = found.filter((each) => !("enum" in each));
    const flags = others.filter((each) => each.type === "boolean");
    const rest = others.filter((each) => each.type !== "boolean");
    const kinds = [...rest, ...(literals.length ? [{ enum: literals }] : []), ...flags.slice(0, 1)];
    return kinds.length === 0 ? undefined : kinds.length === 1 ? kinds[0] : { anyOf: kinds };
  }

  return { schemas, read };
}

const documents = {};
Object.entries(wanted).forEach(([module, types], at) => {
  const { schemas, read } = reader();
  const found = exported(modules.find((each) => each.name === `m${at}`));
  const roots = {};
  for (const name of types) {
    const symbol = found.find((each) => each.name === name);
    if (!symbol) throw new Error(`${module} has no type ${name}`);
    const type = checker.getDeclaredTypeOfSymbol(symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol);
    roots[name] = read(type);
  }
  for (const [name, schema] of Object.entries(roots)) schemas[name] ??= schema;
  documents[module] = schemas;
});
console.log(JSON.stringify(documents));
