{{- define "bridge.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "bridge.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- define "bridge.environment" -}}
envFrom:
  - secretRef: { name: {{ .Values.secret }} }
{{- $given := list }}
{{- if .Values.store }}
{{- $given = append $given (dict "name" "OPENRESPONSES_BRIDGE_STORE" "value" .Values.store) }}
{{- end }}
{{- if .Values.eventLog }}
{{- $given = append $given (dict "name" "OPENRESPONSES_BRIDGE_EVENT_LOG" "value" .Values.eventLog) }}
{{- end }}
{{- range $variable, $key := dict "OPENRESPONSES_BRIDGE_API_KEYS" .Values.keys.clients "OPENRESPONSES_BRIDGE_OPERATOR_KEYS" .Values.keys.operators }}
{{- if and $key (ne $key $variable) }}
{{- $given = append $given (dict "name" $variable "valueFrom" (dict "secretKeyRef" (dict "name" $.Values.secret "key" $key))) }}
{{- end }}
{{- end }}
{{- with concat $given .Values.env }}
env:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "bridge.pod" -}}
automountServiceAccountToken: false
{{- with .Values.serviceAccountName }}
serviceAccountName: {{ . }}
{{- end }}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext: { runAsNonRoot: true, seccompProfile: { type: RuntimeDefault } }
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "bridge.container" -}}
image: {{ include "bridge.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{ include "bridge.environment" . }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: [ALL] }
{{- end }}
