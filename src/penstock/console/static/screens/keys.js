// Keys of clients: made, rotated, revoked. A secret is shown once, when it is made.
import { call, getAll, post, route } from "../api.js";
import { html, useState } from "../html.js";
import { useLive } from "../live.js";
import { ConfirmName, Dialog, Empty, Field, FormDialog, Heading, Loaded, Panel, Table, Tag, tell, Time } from "../parts.js";
import { may } from "../session.js";

const ROLES = { readonly: "reads and sees everything, changes nothing", consumer: "reads, consumes and answers", producer: "publishes", admin: "everything" };

function Create({ onClose, onMade }) {
  const send = async (fields) => {
    const prefixes = fields.prefixes.split(/[\s,]+/).filter(Boolean);
    const body = { name: fields.name.trim(), role: fields.role, prefixes };
    if (fields.expires.trim()) body.expires_in = fields.expires.trim();
    onMade(await post("/admin/keys", body));
  };
  return html`<${FormDialog} title="Create a key" action="Create key" onSend=${send} onClose=${onClose}>
    <${Field} label="Name" hint="Whom it is for"><input name="name" required autocomplete="off" /><//>
    <${Field} label="Role"><select name="role">${Object.entries(ROLES).map(([role, text]) => html`<option value=${role}>${role}: ${text}</option>`)}</select><//>
    <${Field} label="Topic prefixes" hint="With some, the key reaches only topics that begin so"><input name="prefixes" autocomplete="off" /><//>
    <${Field} label="Expires in" hint="30d; empty: never"><input name="expires" autocomplete="off" size="8" /><//><//>`;
}

function Secret({ made, onClose }) {
  return html`<${Dialog} title=${`The key of ${made.name}`} onClose=${onClose}>
    <div class="panel"><p>Copy it now: nothing shows it again.</p><pre class="command" tabindex="0" aria-label="key">${made.key}</pre></div><//>`;
}

export function Keys() {
  const live = useLive((signal) => getAll("/admin/keys", "keys", {}, signal), []);
  const [open, setOpen] = useState(null);
  const close = () => setOpen(null);
  const made = (key) => {
    setOpen({ made: key });
    live.refresh();
  };
  const revoke = async () => {
    await call("DELETE", route`/admin/keys/${open.revoke.key_id}`);
    tell(`The key of ${open.revoke.name} is revoked.`);
    close();
    live.refresh();
  };
  const rotate = async ({ grace }) => made(await post(route`/admin/keys/${open.rotate.key_id}/rotate`, { grace }));
  const actions = (one) => html`<div class="row">
    <button class="small" aria-label=${`Rotate ${one.name}`} onClick=${() => setOpen({ rotate: one })}>Rotate</button>
    <button class="small danger" aria-label=${`Revoke ${one.name}`} onClick=${() => setOpen({ revoke: one })}>Revoke</button></div>`;
  const canChange = may("create, rotate or revoke keys");
  return html`
    <${Heading} title="Keys">${canChange && html`<button class="main" onClick=${() => setOpen({ isNew: true })}>Create key</button>`}<//>
    <${Loaded} live=${live}>${(keys) => html`<${Panel} isFlush=${true}><${Table} title="Keys" rows=${keys} keyOf=${(one) => one.key_id} columns=${[
      { title: "Name", kind: "name", cell: (one) => one.name },
      { title: "Id", cell: (one) => html`<code>${one.key_id}</code>` },
      { title: "Role", cell: (one) => html`<${Tag} kind=${one.role === "admin" ? "warning" : "plain"}>${one.role}<//>` },
      { title: "Topics", cell: (one) => (one.prefixes.length ? one.prefixes.map((prefix) => `${prefix}…`).join(", ") : "all") },
      { title: "Created", cell: (one) => html`<${Time} at=${one.created_at} />` },
      { title: "Expires", cell: (one) => (one.expires_at ? html`<${Time} at=${one.expires_at} />` : "never") },
      { title: "Last used", cell: (one) => (one.last_used ? html`<${Time} at=${one.last_used} />` : "not since the start") },
      { title: "Secrets", kind: "number", cell: (one) => one.secrets },
      ...(canChange ? [{ title: "Change", cell: actions }] : []),
    ]} empty=${html`<${Empty} title="No keys" text="Without keys the broker serves only this machine. Turn them on, and it makes one for you." command="penstock serve --set auth.enabled=true" />`} /><//>`}<//>
    ${open?.isNew && html`<${Create} onClose=${close} onMade=${made} />`}
    ${open?.made && html`<${Secret} made=${open.made} onClose=${close} />`}
    ${open?.rotate && html`<${FormDialog} title=${`Rotate the key of ${open.rotate.name}`} action="Make a new secret" onSend=${rotate} onClose=${close}>
      <${Field} label="The old secret works for" hint="24h, 5m; 0s: it ends at once"><input name="grace" required defaultValue="24h" autocomplete="off" /><//><//>`}
    ${open?.revoke && html`<${ConfirmName} title="Revoke a key" name=${open.revoke.name} action="Revoke key" onSend=${revoke} onClose=${close}>
      Clients that use it are refused at once, and their streams end.<//>`}`;
}
