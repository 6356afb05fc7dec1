{{- define "identity.image" -}}
{{ .Values.image.repository }}{{ with .Values.image.digest }}@{{ . }}{{ else }}:{{ .Values.image.tag }}{{ end }}
{{- end }}

{{- define "identity.environment" -}}
envFrom: [{configMapRef: {name: {{ .Release.Name }}-platform}}, {secretRef: {name: {{ .Values.existingSecret }}}}]
{{- end }}

{{- /* What every pod has: no root, no token of the cluster. The argument is the user's id. */ -}}
{{- define "identity.pod" -}}
automountServiceAccountToken: false
securityContext: {runAsNonRoot: true, runAsUser: {{ . }}, runAsGroup: {{ . }}, fsGroup: {{ . }}, seccompProfile: {type: RuntimeDefault}}
{{- end }}

{{- define "identity.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "identity.container" -}}
securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
{{- end }}

{{- define "identity.mounts" -}}
volumeMounts: [{name: scratch, mountPath: /tmp}, {name: backups, mountPath: /backups}{{ include "identity.authorityMount" . }}]
{{- end }}

{{- define "identity.volumes" -}}
volumes: [{name: scratch, emptyDir: {}}, {name: backups, persistentVolumeClaim: {claimName: {{ .Release.Name }}-backups}}{{ include "identity.authorityVolume" . }}]
{{- end }}

{{- /* What follows in the lists of mounts and volumes: the certificate, without the key that may be beside it. */ -}}
{{- define "identity.authorityMount" -}}
{{- if .Values.authoritySecret }}, {name: authority, mountPath: /etc/identity/authorities, readOnly: true}{{ end }}
{{- end }}

{{- define "identity.authorityVolume" -}}
{{- with .Values.authoritySecret }}, {name: authority, secret: {secretName: {{ . }}, items: [{key: ca.crt, path: ca.crt}]}}{{ end }}
{{- end }}

{{- /* On different machines, and in different zones where there are any. The argument is the label. */ -}}
{{- define "identity.spread" -}}
topologySpreadConstraints:
  - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: {{ . }}}}}
  - {maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: {{ . }}}}}
{{- end }}
